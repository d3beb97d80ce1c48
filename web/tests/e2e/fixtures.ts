// What tests of views share: planners over databases that the command made, and checks that hold for every page.
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, join } from "node:path";

import { expect, test as base, type Page } from "@playwright/test";

import { moeplan, Planner, program, root, temporaryFolder } from "./planner";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const hostileName = `<img src=x onerror="window.hacked=1">&'"`;

interface AxeViolation {
  id: string;
  help: string;
  nodes: { target: string[]; failureSummary: string }[];
}

/** No violation of accessibility rules on the page as it stands. */
export async function expectAccessible(page: Page): Promise<void> {
  // As a string over the debugger's protocol: the page's policy would not let it in as a script.
  await page.evaluate(axeSource);
  const violations = await page.evaluate(
    async () => (await (globalThis as unknown as { axe: { run: () => Promise<{ violations: unknown[] }> } }).axe.run()).violations,
  );
  const told = (violations as AxeViolation[]).map(({ id, help, nodes }) => ({
    id,
    help,
    nodes: nodes.slice(0, 3).map(({ target, failureSummary }) => `${target.join(" ")}: ${failureSummary}`),
  }));
  expect(told).toEqual([]);
}

/** The page does not scroll sideways. */
export async function expectFits(page: Page): Promise<void> {
  const { wide, window } = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth, window: innerWidth }));
  expect(wide).toBeLessThanOrEqual(window);
}

/** Keeps back the planner's answers of a method, such as "Plan", until the returned function is called. */
export async function hold(page: Page, method: string): Promise<() => Promise<void>> {
  let go = (): void => undefined;
  const held = new Promise<void>((done) => { go = done; });
  const methods = `**/moeplan.v1.*/${method}`;
  await page.route(methods, async (route) => {
    await held;
    // The page may have called it off meanwhile.
    await route.continue().catch(() => undefined);
  });
  return async () => {
    go();
    await page.unroute(methods);
  };
}

/** A simulated cluster of 2 nodes of 4 GPUs, and the workloads whose layouts were measured on it. */
export const clusterFile = join(root, "web/tests/e2e/west.json");
const gridFile = join(root, "deploy/examples/grid-2x4.json");
export const workloads = (JSON.parse(readFileSync(gridFile, "utf8")) as { workloads: { name: string }[] }).workloads;

/** A database as `moeplan calibrate` leaves it, made once for each build of the command: profile "west", in two versions. */
function calibratedDatabase(): string {
  const folder = join(process.env["MOEPLAN_E2E_OUT"] ?? join(root, "web/.cache/e2e"), "../seeds");
  const file = join(folder, `${statSync(program).mtimeMs}.db`);
  if (existsSync(file)) return file;
  mkdirSync(folder, { recursive: true });
  const mine = join(folder, `${process.pid}.db`);
  for (const budget of ["10s", "30s"]) {
    moeplan("calibrate", "--simulated", clusterFile, "--layouts", gridFile, "--db", mine, "--profile-name", "west", "--budget", budget, "--json");
  }
  renameSync(mine, file);
  return file;
}

/** Where another build of the page lies than the one that the planner serves; empty: nowhere. */
const otherPages = process.env["MOEPLAN_WEB_DIST"] ?? "";
const contentTypes: Readonly<Record<string, string>> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

interface Fixtures {
  /** Pages of MOEPLAN_WEB_DIST in place of the planner's own. */
  pages: undefined;
  /** A planner over an empty database. */
  emptyPlanner: Planner;
  /** A planner over a calibrated one, which the test may change. */
  planner: Planner;
  /** What the page's console and its policy had to say; checked to be nothing when the test ends. */
  quiet: undefined;
}

export const test = base.extend<Fixtures>({
  emptyPlanner: async ({}, use) => {
    const folder = temporaryFolder();
    const planner = await Planner.start(join(folder.path, "empty.db"));
    await use(planner);
    await planner.stop();
    folder.remove();
  },
  planner: async ({}, use) => {
    const folder = temporaryFolder();
    const db = join(folder.path, "west.db");
    copyFileSync(calibratedDatabase(), db);
    const planner = await Planner.start(db);
    await use(planner);
    await planner.stop();
    folder.remove();
  },
  pages: [
    async ({ page }, use) => {
      if (otherPages !== "") {
        await page.route(({ pathname }) => !pathname.startsWith("/moeplan.v1.") && pathname !== "/healthz", async (route) => {
          const { pathname } = new URL(route.request().url());
          const file = join(otherPages, pathname === "/" ? "index.html" : pathname);
          const headers = { "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'" };
          if (existsSync(file)) await route.fulfill({ body: readFileSync(file), contentType: contentTypes[extname(file)] ?? "application/octet-stream", headers });
          else await route.fulfill({ status: 404 });
        });
      }
      await use(undefined);
    },
    { auto: true },
  ],
  quiet: [
    async ({ page }, use) => {
      const said: string[] = [];
      page.on("pageerror", (error) => said.push(String(error)));
      page.on("console", (message) => {
        // A planner that is away, or that refuses, is part of some tests; the browser writes each such answer down.
        if (message.type() === "error" && !/Failed to load resource/.test(message.text())) said.push(message.text());
      });
      page.on("request", (request) => {
        const { hostname, protocol } = new URL(request.url());
        if (protocol !== "data:" && protocol !== "blob:" && hostname !== "127.0.0.1") said.push(`asked ${request.url()}`);
      });
      await use(undefined);
      expect(said).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
