/// <reference types="vitest/config" />
import { defineConfig } from "vite";

// Where `npm run dev` finds a planner.
const planner = process.env["MOEPLAN_PLANNER"] ?? "http://127.0.0.1:7080";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    target: "es2022",
    outDir: process.env["MOEPLAN_WEB_OUT"] ?? "dist",
    emptyOutDir: true,
    // A data: URL would need a hole in the Content-Security-Policy, and so would the polyfill.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: { "/moeplan.v1.": planner, "/healthz": planner },
    // The examples of deploy/ are parts of views.
    fs: { allow: [".."] },
  },
  test: { include: ["tests/unit/**/*.test.{ts,tsx}"] },
});
