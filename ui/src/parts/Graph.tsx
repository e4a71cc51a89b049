/** The steps of a plan as a graph, left to right. Loaded on demand: `parts/LazyGraph.tsx`. */
import dagre from "@dagrejs/dagre";
import {
  BaseEdge,
  Controls,
  type Edge,
  EdgeLabelRenderer,
  type EdgeProps,
  getSmoothStepPath,
  Handle,
  MarkerType,
  MiniMap,
  type Node,
  type NodeHandle,
  type NodeProps,
  Panel,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
} from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { memo, type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { countText } from "../lib/numbers.ts";
import { conditionText, groupsOf, type PlanGraph, type PlanStep, type StepGroup } from "../lib/plan.ts";
import { STATES, type State } from "../lib/states.ts";
import styles from "./Graph.module.css";
import { StateGlyph } from "./State.tsx";

export interface NodeLook {
  state: State | null;
  /** under the name: "997 ✓ 3 ✗" */
  note: string;
  /** heights from 0 to 1, of a loop */
  bars?: { done: number; failed: number; open: number }[];
  mark?: "added" | "removed" | "changed";
  isPlan?: boolean;
}

interface Props {
  plan: PlanGraph;
  look?: (step: string) => NodeLook;
  /** how often an arc was taken */
  taken?: ReadonlyMap<string, number>;
  /** tokens by place */
  tokens?: ReadonlyMap<string, number>;
  selected?: string | undefined;
  onSelect?: (step: string) => void;
  label: string;
}

interface StepData extends Record<string, unknown> {
  name: string;
  kinds: string;
  loop: string;
  entry: boolean;
  look: NodeLook;
}
interface ArcData extends Record<string, unknown> {
  text: string;
  /** null: the graph is of a playbook, not of a run */
  taken: boolean | null;
  tokens: number;
  /** how far above its steps an arc runs that leads back; 0 for all others */
  above: number;
}
interface GroupData extends Record<string, unknown> {
  steps: { name: string; look: NodeLook }[];
  chosen: string | undefined;
}
type StepNode = Node<StepData, "step">;
/* The library has its own look for a type that is called group. */
type GroupNode = Node<GroupData, "steps">;
type ArcEdge = Edge<ArcData, "arc">;

const NARROWEST = 112;
const WIDEST = 200;
const LOOP_WIDTH = 184;
const HEIGHT = 60;
const LOOP_HEIGHT = 84;
/** Room above steps for an arc that leads back. */
const ABOVE = 22;
/** A group draws its steps as squares. */
const CELL = 12;
const GROUP_HEAD = 52;
/** Smaller than this, names cannot be read: then only a part of the graph is in sight. */
const LEAST_ZOOM = 0.62;
/** Graphs of more steps have an overview and a search. */
const LARGE = 20;
/** a step of a playbook, not of a run */
const PLAIN: NodeLook = { state: null, note: "", isPlan: true };
const NONE: ReadonlyMap<string, number> = new Map();
const ORIGIN = { x: 0, y: 0 };
const PRO = { hideAttribution: true };

export function Graph(props: Props): ReactNode {
  return (
    <ReactFlowProvider>
      <Flow {...props} />
    </ReactFlowProvider>
  );
}

function Flow({ plan, look, taken, tokens = NONE, selected, onSelect, label }: Props): ReactNode {
  const placed = useMemo(() => layout(plan), [plan]);
  const lookOf = (step: PlanStep): NodeLook => look?.(step.name) ?? PLAIN;
  const nodes = useKept<StepNode | GroupNode>([
    ...plan.steps
      .filter((step) => !placed.groupOf.has(step.name))
      .map((step) => {
        const now = lookOf(step);
        const isChosen = step.name === selected;
        return {
          id: step.name,
          key: [placed, now.state, now.note, now.bars, now.mark, isChosen],
          make: (): StepNode => ({
            id: step.name,
            type: "step",
            ...placed.boxes.get(step.name),
            position: placed.boxes.get(step.name)?.position ?? ORIGIN,
            selected: isChosen,
            ariaLabel: `Step ${step.name}${now.state ? `, ${STATES[now.state]}` : ""}${now.note ? `, ${now.note}` : ""}`,
            data: {
              name: step.name,
              kinds: [...new Set(step.tasks.map((task) => task.kind))].join(", "),
              loop: step.loop ? `each ${step.loop.iterator}` : "",
              entry: step.name === plan.entry,
              look: now,
            },
          }),
        };
      }),
    ...placed.groups.map((group) => {
      const steps = group.steps.map((step) => ({ name: step.name, look: lookOf(step) }));
      const chosen = placed.groupOf.get(selected ?? "") === group.id ? selected : undefined;
      return {
        id: group.id,
        key: [placed, chosen, ...steps.flatMap((step) => [step.look.state, step.look.mark])],
        make: (): GroupNode => ({
          id: group.id,
          type: "steps",
          ...placed.boxes.get(group.id),
          position: placed.boxes.get(group.id)?.position ?? ORIGIN,
          selected: chosen !== undefined,
          ariaLabel: `${groupTitle(steps)}, ${groupNote(steps)}`,
          data: { steps, chosen },
        }),
      };
    }),
  ]);
  const edges = useKept<ArcEdge>(
    placed.arcs.map((arc) => {
      const text = arc.from === selected || arc.to === selected ? conditionText(arc.when) : "";
      const isTaken = taken ? arc.places.some((place) => (taken.get(place) ?? 0) > 0) : null;
      const count = arc.places.reduce((sum, place) => sum + (tokens.get(place) ?? 0), 0);
      return {
        id: arc.id,
        key: [placed, text, isTaken, count],
        make: () => ({
          id: arc.id,
          type: "arc" as const,
          source: arc.from,
          target: arc.to,
          focusable: false,
          markerEnd: ARROW,
          data: { text, taken: isTaken, tokens: count, above: arc.above },
        }),
      };
    }),
  );
  // The same function all the time: a new one would draw every node anew.
  const choose = useRef(onSelect);
  choose.current = onSelect;
  const onNodeClick = useCallback((event: { target: EventTarget }, node: StepNode | GroupNode) => {
    const cell = event.target instanceof SVGElement ? event.target.dataset.step : undefined;
    const name = node.type === "steps" ? (cell ?? firstOf(node.data.steps)) : node.id;
    if (name) choose.current?.(name);
  }, []);
  return (
    <div
      className={styles.graph}
      role="group"
      aria-label={label}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        const node =
          event.target instanceof HTMLElement ? event.target.closest<HTMLElement>(".react-flow__node") : null;
        if (!node?.dataset.id) return;
        event.preventDefault();
        const group = nodes.find((one) => one.id === node.dataset.id && one.type === "steps") as GroupNode | undefined;
        const name = group ? firstOf(group.data.steps) : node.dataset.id;
        if (name) onSelect?.(name);
      }}
    >
      <ReactFlow<StepNode | GroupNode, ArcEdge>
        nodes={nodes}
        edges={edges}
        nodeTypes={NODES}
        edgeTypes={EDGES}
        nodesDraggable={false}
        nodesConnectable={false}
        elementsSelectable={false}
        nodesFocusable
        deleteKeyCode={null}
        onNodeClick={onNodeClick}
        minZoom={0.05}
        maxZoom={1.5}
        onlyRenderVisibleElements={nodes.length > 100}
        proOptions={PRO}
        zoomOnScroll={false}
        preventScrolling={false}
      >
        <Controls showInteractive={false} position="bottom-left" orientation="horizontal" fitViewOptions={FIT} />
        {nodes.length > LARGE && (
          <MiniMap pannable zoomable ariaLabel="Overview of the graph" style={OVERVIEW} nodeColor={colourOf} />
        )}
        {plan.steps.length > LARGE && (
          <Panel position="top-left">
            <FindStep plan={plan} onFound={(step) => onSelect?.(step)} />
          </Panel>
        )}
        <Fit plan={plan} selected={selected && (placed.groupOf.get(selected) ?? selected)} />
      </ReactFlow>
    </div>
  );
}

interface Wanted<T> {
  id: string;
  /** what it is made from */
  key: unknown[];
  make: () => T;
}

/** Nodes or edges, the same objects as before where nothing changed: the library draws only what is new. */
function useKept<T>(wanted: Wanted<T>[]): T[] {
  const kept = useRef<{ items: Map<string, { key: unknown[]; made: T }>; list: T[] }>({ items: new Map(), list: [] });
  const items = new Map<string, { key: unknown[]; made: T }>();
  for (const { id, key, make } of wanted) {
    const known = kept.current.items.get(id);
    const isSame = known?.key.every((part, index) => Object.is(part, key[index]));
    items.set(id, known && isSame ? known : { key, made: make() });
  }
  const list = [...items.values()].map((item) => item.made);
  const before = kept.current.list;
  const isSame = list.length === before.length && list.every((made, index) => made === before[index]);
  kept.current = { items, list: isSame ? before : list };
  return kept.current.list;
}

const FIT = { padding: 0.12, maxZoom: 1, duration: 0 };
/** Above it is the search. */
const FIT_LARGE = { ...FIT, padding: { x: 0.12, bottom: 0.12, top: "52px" } as const };
const OVERVIEW = { width: 120, height: 80 };

function colourOf(node: StepNode | GroupNode): string {
  const state = node.type === "steps" ? worstOf(node.data.steps) : node.data.look.state;
  return state === "failed" || state === "running" || state === "done" || state === "waiting"
    ? `var(--${state}-fill)`
    : "var(--n7)";
}

/** Keeps the graph in sight when the panel or the plan changes: all of it where names can be read then, else the selected step. */
function Fit({ plan, selected }: { plan: PlanGraph; selected: string | undefined }): ReactNode {
  const { fitView, getNodes, getNodesBounds, setViewport } = useReactFlow();
  const width = useStore((state) => state.width);
  const height = useStore((state) => state.height);
  // biome-ignore lint/correctness/useExhaustiveDependencies: fitted anew when the panel or the plan changes
  useEffect(() => {
    if (!width || !height) return;
    const all = getNodesBounds(getNodes());
    if (!all.width || !all.height) return;
    const isLarge = plan.steps.length > LARGE;
    if (Math.min((width - 48) / all.width, (height - (isLarge ? 76 : 24)) / all.height) >= LEAST_ZOOM) {
      void fitView(isLarge ? FIT_LARGE : FIT);
      return;
    }
    const chosen = selected ? getNodesBounds([selected]) : null;
    const middle = chosen?.width ? { x: chosen.x + chosen.width / 2, y: chosen.y + chosen.height / 2 } : null;
    void setViewport({
      x: shift(middle?.x ?? 0, all.x, all.width, width),
      y: shift(middle?.y ?? all.y + all.height / 2, all.y, all.height, height),
      zoom: LEAST_ZOOM,
    });
  }, [width, height, plan, selected, fitView]);
  return null;
}

/** Where the view begins so that `middle` is in sight and nothing is left empty that could show the graph. */
function shift(middle: number, begin: number, extent: number, room: number): number {
  const margin = 24;
  const size = extent * LEAST_ZOOM;
  if (size + 2 * margin <= room) return (room - size) / 2 - begin * LEAST_ZOOM;
  const wanted = room / 2 - middle * LEAST_ZOOM;
  return Math.max(Math.min(wanted, margin - begin * LEAST_ZOOM), room - margin - (begin + extent) * LEAST_ZOOM);
}

/** A step of a large graph by its name: Enter goes from one match to the next. */
function FindStep({ plan, onFound }: { plan: PlanGraph; onFound: (step: string) => void }): ReactNode {
  const [text, setText] = useState("");
  const [at, setAt] = useState(-1);
  const wanted = text.trim().toLowerCase();
  const matches = wanted ? plan.steps.filter((step) => step.name.toLowerCase().includes(wanted)) : [];
  return (
    <form
      className={styles.find}
      onSubmit={(event) => {
        event.preventDefault();
        const next = matches.length ? (at + 1) % matches.length : -1;
        const step = matches[next];
        setAt(next);
        if (step) onFound(step.name);
      }}
    >
      <input
        type="search"
        aria-label="Find a step"
        placeholder="Find a step"
        value={text}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setText(event.target.value);
          setAt(-1);
        }}
      />
      {wanted && (
        <span className="quiet small" role="status">
          {at < 0 ? countText(matches.length) : `${countText(at + 1)} of ${countText(matches.length)}`}
        </span>
      )}
    </form>
  );
}

const Step = memo(function Step({ data, selected }: NodeProps<StepNode>): ReactNode {
  const { look } = data;
  return (
    <div
      className={styles.node}
      data-state={look.state ?? (look.isPlan ? "plan" : "none")}
      data-selected={selected}
      data-mark={look.mark}
    >
      <Handle type="target" position={Position.Left} className={styles.handle} isConnectable={false} />
      <div className={styles.name}>
        {look.state && <StateGlyph state={look.state} />}
        <span className="cut">{data.name}</span>
      </div>
      <div className={styles.about}>
        <span className="cut">{data.loop ? `${data.loop} · ${data.kinds}` : data.kinds}</span>
        {look.note && <span className={styles.note}>{look.note}</span>}
      </div>
      {data.loop && <Bars bars={look.bars ?? []} />}
      <Handle type="source" position={Position.Right} className={styles.handle} isConnectable={false} />
    </div>
  );
});

const WORST: readonly State[] = ["failed", "retrying", "running", "waiting", "queued", "cancelled", "skipped", "done"];

type GroupSteps = GroupData["steps"];

function worstOf(steps: GroupSteps): State | null {
  const states = new Set(steps.map((step) => step.look.state));
  return WORST.find((state) => states.has(state)) ?? null;
}

/** The step of a group that somebody wants to see who opens it: one that failed, else one that runs, else the first. */
function firstOf(steps: GroupSteps): string | undefined {
  const worst = worstOf(steps);
  return (steps.find((step) => step.look.state === worst && worst !== "done") ?? steps[0])?.name;
}

function groupTitle(steps: GroupSteps): string {
  return `${steps[0]?.name ?? ""} … ${steps.at(-1)?.name ?? ""}`;
}

function groupNote(steps: GroupSteps): string {
  const count = (state: State): number => steps.filter((step) => step.look.state === state).length;
  const done = count("done");
  const failed = count("failed");
  return [
    `${countText(steps.length)} steps`,
    done ? `${countText(done)} ✓` : "",
    failed ? `${countText(failed)} ✗` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

function columnsOf(count: number): number {
  return Math.max(14, Math.ceil(Math.sqrt(count * 2)));
}

/** Steps between the same steps, a square each: select one here, by search or in the other panels. */
const Group = memo(function Group({ data, selected }: NodeProps<GroupNode>): ReactNode {
  const { steps, chosen } = data;
  const columns = columnsOf(steps.length);
  const state = worstOf(steps);
  const isPlan = steps.every((step) => step.look.isPlan);
  return (
    <div className={styles.node} data-state={state ?? (isPlan ? "plan" : "none")} data-selected={selected}>
      <Handle type="target" position={Position.Left} className={styles.handle} isConnectable={false} />
      <div className={styles.name}>
        {state && <StateGlyph state={state} />}
        <span className="cut">{chosen ?? groupTitle(steps)}</span>
      </div>
      <div className={styles.about}>
        <span className="cut">{groupNote(steps)}</span>
      </div>
      <svg
        className={styles.cells}
        width={columns * CELL}
        height={Math.ceil(steps.length / columns) * CELL}
        aria-hidden="true"
      >
        {steps.map((step, index) => (
          <rect
            key={step.name}
            data-step={step.name}
            data-state={step.look.state ?? undefined}
            data-mark={step.look.mark}
            data-chosen={step.name === chosen || undefined}
            x={(index % columns) * CELL + 1}
            y={Math.floor(index / columns) * CELL + 1}
            width={CELL - 2}
            height={CELL - 2}
            rx={2}
          >
            <title>{step.name}</title>
          </rect>
        ))}
        {steps.map(
          (step, index) =>
            // Never by colour alone.
            step.look.state === "failed" && (
              <path
                key={step.name}
                transform={`translate(${(index % columns) * CELL} ${Math.floor(index / columns) * CELL})`}
                d="M4 4 8 8M8 4 4 8"
              />
            ),
        )}
      </svg>
      <Handle type="source" position={Position.Right} className={styles.handle} isConnectable={false} />
    </div>
  );
});

/** How long items took, by state. */
export function Bars({ bars }: { bars: { done: number; failed: number; open: number }[] }): ReactNode {
  const most = Math.max(1, ...bars.map((bar) => bar.done + bar.failed + bar.open));
  return (
    <svg className={styles.bars} viewBox="0 0 80 16" preserveAspectRatio="none" aria-hidden="true">
      {bars.map((bar, index) => {
        let y = 16;
        return (["done", "failed", "open"] as const).map((state) => {
          const height = bar[state] ? Math.max((15 * bar[state]) / most, 1.5) : 0;
          y -= height;
          return (
            <rect
              // biome-ignore lint/suspicious/noArrayIndexKey: a bin is its place
              key={`${index}${state}`}
              className={styles[state]}
              x={index * (80 / bars.length) + 0.5}
              y={y}
              width={80 / bars.length - 1}
              height={height}
            />
          );
        });
      })}
    </svg>
  );
}

const Arc = memo(function Arc(props: EdgeProps<ArcEdge>): ReactNode {
  const { text = "", taken = false, tokens = 0, above = 0 } = props.data ?? {};
  const [path, x, y] = above ? backPath(props, above) : getSmoothStepPath({ ...props, borderRadius: 6 });
  return (
    <>
      <BaseEdge
        id={props.id}
        path={path}
        style={taken === null ? PLANNED : taken ? TAKEN : OPEN}
        markerEnd={props.markerEnd ?? ""}
      />
      {(text || tokens > 0) && (
        <EdgeLabelRenderer>
          <span className={styles.label} style={{ transform: `translate(-50%, -50%) translate(${x}px, ${y}px)` }}>
            {tokens > 0 && (
              <span className={styles.token} title={`${tokens} token${tokens > 1 ? "s" : ""} here`}>
                {tokens > 1 ? tokens : ""}
              </span>
            )}
            {text && <span className={`${styles.when} cut`}>{text}</span>}
          </span>
        </EdgeLabelRenderer>
      )}
    </>
  );
});

/* As properties: the library's own style sheet is in no layer, and wins over ours. */
const TAKEN = { stroke: "var(--n10)", strokeWidth: 1.75 };
const PLANNED = { stroke: "var(--n9)" };
const OPEN = { stroke: "var(--n8)", strokeDasharray: "4 4" };
const ARROW = { type: MarkerType.ArrowClosed, color: "var(--n9)", width: 16, height: 16 };

const NODES = { step: Step, steps: Group };
const EDGES = { arc: Arc };

interface Ends {
  sourceX: number;
  sourceY: number;
  targetX: number;
  targetY: number;
}

/** An arc that leads back, or to the step that it comes from: over the steps, so that it is not taken for one that leads on. */
function backPath({ sourceX, sourceY, targetX, targetY }: Ends, above: number): [string, number, number] {
  const y = Math.min(sourceY, targetY) - above;
  const out = sourceX + 12;
  const back = targetX - 14;
  const path = [
    `M${sourceX} ${sourceY}`,
    `H${out - 6} Q${out} ${sourceY} ${out} ${sourceY - 6}`,
    `V${y + 6} Q${out} ${y} ${out - 6} ${y}`,
    `H${back + 6} Q${back} ${y} ${back} ${y + 6}`,
    `V${targetY - 6} Q${back} ${targetY} ${back + 6} ${targetY}`,
    `H${targetX}`,
  ];
  return [path.join(" "), (out + back) / 2, y];
}

interface Arrow {
  id: string;
  from: string;
  to: string;
  when: unknown;
  places: string[];
  above: number;
}

/** Size and handles are known: the library measures nothing, and arcs stay while their steps change. */
interface Box {
  position: { x: number; y: number };
  width: number;
  height: number;
  measured: { width: number; height: number };
  handles: NodeHandle[];
}

function boxOf(x: number, y: number, width: number, height: number): Box {
  const handle = { y: height / 2 - 0.5, width: 1, height: 1 };
  return {
    position: { x: x - width / 2, y: y - height / 2 },
    width,
    height,
    measured: { width, height },
    handles: [
      // Arcs keep a little distance, so that borders do not hide their heads.
      { ...handle, type: "target", position: Position.Left, x: -3 },
      { ...handle, type: "source", position: Position.Right, x: width + 2 },
    ],
  };
}

interface Layout {
  boxes: Map<string, Box>;
  groups: StepGroup[];
  /** the group of a step that is drawn in one */
  groupOf: Map<string, string>;
  arcs: Arrow[];
}

function layout(plan: PlanGraph): Layout {
  const groups = groupsOf(plan);
  const groupOf = new Map(groups.flatMap((group) => group.steps.map((step) => [step.name, group.id])));
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 24, ranksep: 48 });
  graph.setDefaultEdgeLabel(() => ({}));
  const sizes = new Map<string, { width: number; height: number }>();
  for (const step of plan.steps) if (!groupOf.has(step.name)) sizes.set(step.name, sizeOf(step));
  for (const group of groups) {
    const columns = columnsOf(group.steps.length);
    const rows = Math.ceil(group.steps.length / columns);
    sizes.set(group.id, { width: Math.max(columns * CELL + 26, WIDEST), height: rows * CELL + GROUP_HEAD });
  }
  const arcs = new Map<string, Arrow>();
  for (const step of plan.steps) {
    for (const arc of step.arcs) {
      const from = groupOf.get(step.name) ?? step.name;
      const to = groupOf.get(arc.step) ?? arc.step;
      if (!sizes.has(to)) continue;
      const isGrouped = from !== step.name || to !== arc.step;
      const id = isGrouped ? JSON.stringify([from, to]) : arc.place;
      const known = arcs.get(id);
      if (known) known.places.push(arc.place);
      else arcs.set(id, { id, from, to, when: isGrouped ? null : arc.when, places: [arc.place], above: 0 });
    }
  }
  const loops = new Set([...arcs.values()].filter((arc) => arc.from === arc.to).map((arc) => arc.from));
  for (const [name, { width, height }] of sizes) {
    graph.setNode(name, { width, height: height + (loops.has(name) ? 2 * ABOVE : 0) });
  }
  for (const arc of arcs.values()) if (arc.from !== arc.to) graph.setEdge(arc.from, arc.to, {}, arc.id);
  dagre.layout(graph);
  const boxes: Layout["boxes"] = new Map();
  for (const [name, { width, height }] of sizes) {
    const node = graph.node(name);
    boxes.set(name, boxOf(node.x, node.y, width, height));
  }
  for (const arc of arcs.values()) {
    const [from, to] = [boxes.get(arc.from), boxes.get(arc.to)];
    if (from && to && to.position.x <= from.position.x) arc.above = Math.max(from.height, to.height) / 2 + ABOVE - 6;
  }
  return { boxes, groups, groupOf, arcs: [...arcs.values()] };
}

function sizeOf(step: PlanStep): { width: number; height: number } {
  const kinds = [...new Set(step.tasks.map((task) => task.kind))].join(", ");
  const width = Math.min(Math.max(step.name.length * 8.5 + 52, kinds.length * 7 + 76, NARROWEST), WIDEST);
  return step.loop ? { width: Math.max(width, LOOP_WIDTH), height: LOOP_HEIGHT } : { width, height: HEIGHT };
}
