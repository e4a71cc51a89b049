import type { Plugin } from "vite";

/** Tells `public/early.js` which files draw a graph, so that a run's page asks for them together with its own code. */
export function early(): Plugin {
  return {
    name: "early",
    apply: "build",
    transformIndexHtml: {
      order: "post",
      handler(html, { bundle = {} }) {
        const chunks = Object.values(bundle).filter((file) => file.type === "chunk");
        const graph = chunks.find((chunk) => chunk.facadeModuleId?.endsWith("/parts/Graph.tsx"));
        if (!graph) throw new Error("the build has no file of its own for parts/Graph.tsx");
        const first = new Set(chunks.filter((chunk) => chunk.isEntry).flatMap((one) => [one.fileName, ...one.imports]));
        const code = [graph.fileName, ...graph.imports].filter((name) => !first.has(name)).map((name) => `/${name}`);
        const styles = [...(graph.viteMetadata?.importedCss ?? [])].map((name) => `/${name}`);
        return html.replace(
          'src="/early.js"',
          `src="/early.js" data-code="${code.join(" ")}" data-styles="${styles.join(" ")}"`,
        );
      },
    },
  };
}
