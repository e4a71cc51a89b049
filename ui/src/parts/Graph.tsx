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
  type NodeProps,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
} from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { memo, type ReactNode, useCallback, useEffect, useMemo, useRef } from "react";
import { conditionText, type PlanGraph } from "../lib/plan.ts";
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
}
type StepNode = Node<StepData, "step">;
type ArcEdge = Edge<ArcData, "arc">;

const WIDTH = 184;
const HEIGHT = 60;
const LOOP_HEIGHT = 84;
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
  const nodes = useKept<StepNode>(
    plan.steps.map((step) => {
      const now = look?.(step.name) ?? PLAIN;
      const isChosen = step.name === selected;
      return {
        id: step.name,
        key: [placed, now.state, now.note, now.bars, now.mark, isChosen],
        make: () => ({
          id: step.name,
          type: "step",
          position: placed.get(step.name) ?? ORIGIN,
          width: WIDTH,
          height: step.loop ? LOOP_HEIGHT : HEIGHT,
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
  );
  const edges = useKept<ArcEdge>(
    plan.steps.flatMap((step) =>
      step.arcs.map((arc) => {
        const text = step.name === selected || arc.step === selected ? conditionText(arc.when) : "";
        const isTaken = taken ? (taken.get(arc.place) ?? 0) > 0 : null;
        const count = tokens.get(arc.place) ?? 0;
        return {
          id: arc.place,
          key: [placed, text, isTaken, count],
          make: () => ({
            id: arc.place,
            type: "arc" as const,
            source: step.name,
            target: arc.step,
            focusable: false,
            markerEnd: ARROW,
            data: { text, taken: isTaken, tokens: count },
          }),
        };
      }),
    ),
  );
  // The same function all the time: a new one would draw every node anew.
  const choose = useRef(onSelect);
  choose.current = onSelect;
  const onNodeClick = useCallback((_: unknown, node: StepNode) => choose.current?.(node.id), []);
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
        onSelect?.(node.dataset.id);
      }}
    >
      <ReactFlow<StepNode, ArcEdge>
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
        fitView
        fitViewOptions={FIT}
        minZoom={0.05}
        maxZoom={1.5}
        onlyRenderVisibleElements={plan.steps.length > 100}
        proOptions={PRO}
        zoomOnScroll={false}
        preventScrolling={false}
      >
        <Controls showInteractive={false} position="bottom-left" orientation="horizontal" />
        {plan.steps.length > 20 && <MiniMap pannable zoomable ariaLabel="Overview of the graph" />}
        <Fit plan={plan} selected={selected} />
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

/** Keeps the whole graph in sight when the panel or the plan changes, and a selected step in a large one. */
function Fit({ plan, selected }: { plan: PlanGraph; selected: string | undefined }): ReactNode {
  const { fitView } = useReactFlow();
  const width = useStore((state) => state.width);
  const height = useStore((state) => state.height);
  // biome-ignore lint/correctness/useExhaustiveDependencies: fitted anew when the panel or the plan changes
  useEffect(() => {
    if (width && height) void fitView(FIT);
  }, [width, height, plan, fitView]);
  useEffect(() => {
    if (selected && plan.steps.length > 12) void fitView({ nodes: [{ id: selected }], maxZoom: 1, duration: 0 });
  }, [selected, plan, fitView]);
  return null;
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
  const [path, x, y] = getSmoothStepPath({ ...props, borderRadius: 6 });
  const { text = "", taken = false, tokens = 0 } = props.data ?? {};
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

const NODES = { step: Step };
const EDGES = { arc: Arc };

function layout(plan: PlanGraph): Map<string, { x: number; y: number }> {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 24, ranksep: 56 });
  graph.setDefaultEdgeLabel(() => ({}));
  const names = new Set(plan.steps.map((step) => step.name));
  for (const step of plan.steps) {
    graph.setNode(step.name, { width: WIDTH, height: step.loop ? LOOP_HEIGHT : HEIGHT });
  }
  for (const step of plan.steps) {
    for (const arc of step.arcs) {
      if (names.has(arc.step) && arc.step !== step.name) graph.setEdge(step.name, arc.step, {}, arc.place);
    }
  }
  dagre.layout(graph);
  return new Map(
    plan.steps.map((step) => {
      const node = graph.node(step.name);
      return [step.name, { x: node.x - node.width / 2, y: node.y - node.height / 2 }];
    }),
  );
}
