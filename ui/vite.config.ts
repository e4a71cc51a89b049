import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { compressed } from "./plugins/compressed.ts";
import { early } from "./plugins/early.ts";

/** Where `./x ui dev` finds the API: a server that runs beside it. */
const api = process.env.ARCLOG_SERVER ?? "http://127.0.0.1:8420";

export default defineConfig({
  plugins: [react(), early(), compressed()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "../src/arclog/server/static",
    emptyOutDir: true,
    // Browsers with light-dark() and dialogs: nothing is rewritten for older ones.
    target: ["chrome125", "firefox128", "safari17.5"],
    // Inlined files would be data: addresses, which the page's policy allows for images alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      "/api": {
        target: api,
        changeOrigin: true,
        // The server takes requests of its own pages alone: here the pages come from Vite, on this machine.
        configure: (proxy) => proxy.on("proxyReq", (request) => request.setHeader("origin", api)),
      },
    },
  },
  test: { environment: "node", include: ["src/**/*.test.ts"] },
});
