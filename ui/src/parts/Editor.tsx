/** A text editor for YAML. Loaded on demand: `parts/LazyEditor.tsx`. It lives in a shadow root, where its styles are adopted sheets. */
import { autocompletion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { yaml } from "@codemirror/lang-yaml";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { basicSetup, EditorView } from "codemirror";
import { type ReactNode, useEffect, useRef } from "react";
import type { CheckFinding } from "../api/types.ts";
import { keysAt, type Schema } from "../lib/schema.ts";

export interface EditorProps {
  /** the text to begin with; a new one replaces what was typed */
  text: string;
  label: string;
  findings?: readonly CheckFinding[];
  schema?: Schema | undefined;
  /** the line to go to, counted from 1; `at` makes the same line a new wish */
  goTo?: { line: number; at: number } | undefined;
  onChange?: (text: string) => void;
  onLine?: (line: number) => void;
  readOnly?: boolean;
}

const THEME = EditorView.theme({
  "&": { height: "100%", fontSize: "12px", color: "var(--text)", backgroundColor: "var(--panel)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--n3)" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-line) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-panels": { backgroundColor: "var(--page)", color: "var(--text)" },
  ".ͼl, .ͼi": { color: "var(--accent-text)" },
  ".ͼe": { color: "var(--done)" },
  ".ͼd, .ͼc, .ͼb": { color: "var(--running)" },
  ".ͼm": { color: "var(--quiet)" },
});

export function Editor(props: EditorProps): ReactNode {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const current = useRef(props);
  current.current = props;

  useEffect(() => {
    const place = host.current;
    if (!place) return;
    const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
    const made = new EditorView({
      root,
      parent: root as unknown as Element,
      state: EditorState.create({
        doc: current.current.text,
        extensions: [
          basicSetup,
          yaml(),
          lintGutter(),
          THEME,
          autocompletion({ override: [(context) => complete(context, current.current.schema)] }),
          EditorState.readOnly.of(current.current.readOnly ?? false),
          EditorView.contentAttributes.of({ "aria-label": current.current.label, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) current.current.onChange?.(update.state.doc.toString());
            if (update.selectionSet || update.docChanged) {
              current.current.onLine?.(update.state.doc.lineAt(update.state.selection.main.head).number);
            }
          }),
        ],
      }),
    });
    view.current = made;
    return () => {
      view.current = null;
      made.destroy();
    };
  }, []);

  const { text, findings, goTo } = props;
  useEffect(() => {
    const made = view.current;
    if (!made || made.state.doc.toString() === text) return;
    made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: text } });
  }, [text]);
  useEffect(() => {
    const made = view.current;
    if (made)
      made.dispatch(
        setDiagnostics(
          made.state,
          (findings ?? []).map((one) => diagnostic(made.state, one)),
        ),
      );
  }, [findings]);
  useEffect(() => {
    const made = view.current;
    if (!made || !goTo || goTo.line < 1 || goTo.line > made.state.doc.lines) return;
    const line = made.state.doc.line(goTo.line);
    made.dispatch({ selection: { anchor: line.from }, effects: EditorView.scrollIntoView(line.from, { y: "center" }) });
  }, [goTo]);
  return <div ref={host} style={{ height: "100%" }} />;
}

function diagnostic(state: EditorState, finding: CheckFinding): Diagnostic {
  const line = state.doc.line(Math.min(Math.max(finding.line, 1), state.doc.lines));
  const from = Math.min(line.from + Math.max(finding.column - 1, 0), line.to);
  const rest = /^[\w.-]+/.exec(state.doc.sliceString(from, line.to))?.[0].length ?? 1;
  return {
    from,
    to: Math.min(from + rest, line.to),
    severity: finding.severity === "error" ? "error" : finding.severity === "warning" ? "warning" : "info",
    source: finding.code,
    message: finding.hint ? `${finding.message}\n${finding.hint}` : finding.message,
  };
}

function complete(context: CompletionContext, schema: Schema | undefined): CompletionResult | null {
  const word = context.matchBefore(/[\w-]*/);
  if (!schema || !word || (word.from === word.to && !context.explicit)) return null;
  const line = context.state.doc.lineAt(context.pos);
  if (!/^[\s-]*[\w-]*$/.test(line.text.slice(0, context.pos - line.from))) return null;
  const before = context.state.doc.sliceString(0, line.from).split("\n").slice(0, -1);
  const options = keysAt(schema, before, line.text).map((key) => ({
    label: key.name,
    type: "property",
    apply: `${key.name}: `,
    ...(key.description ? { info: key.description } : {}),
  }));
  return { from: word.from, options, validFor: /^[\w-]*$/ };
}
