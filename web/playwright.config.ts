import { existsSync } from "node:fs";

import { defineConfig } from "@playwright/test";

// Debian's own, either of which does.
const browsers = ["/usr/bin/chromium", "/usr/bin/chromium-headless-shell"];

export default defineConfig({
  testDir: "tests/e2e",
  outputDir: process.env["MOEPLAN_E2E_OUT"] ?? ".cache/e2e",
  fullyParallel: true,
  workers: 2,
  timeout: 120_000,
  expect: { timeout: 20_000 },
  reporter: [["line"]],
  use: {
    viewport: { width: 1280, height: 900 },
    trace: "retain-on-failure",
    screenshot: "only-on-failure",
    // What is asked of a page is asked of it at rest, not on the way between two colours.
    contextOptions: { reducedMotion: "reduce" },
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? browsers.find((file) => existsSync(file)) ?? browsers[0]!,
      // Chromium's sandbox refuses root, which is what containers run as.
      args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
    },
  },
});
