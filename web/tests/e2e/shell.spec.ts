// What every view shares: the frame around it, the address, the token, and a planner that comes and goes.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Locator, Page } from "@playwright/test";

import { expect, expectAccessible, expectFits, test, workloads } from "./fixtures";
import { moeplan, root } from "./planner";

const views = ["My job", "Clusters", "Curves", "Plan", "What-if", "Dispatchers", "Layouts", "Accuracy"];

/** Each view's own content, which comes after its heading. */
const contentOf = (page: Page): Readonly<Record<string, Locator>> => {
  const profileToChoose = page.getByRole("main").locator("option", { hasText: /^west$/ });
  return {
    "My job": profileToChoose,
    Clusters: page.getByRole("table", { name: /Links, fitted/ }),
    Curves: page.getByRole("region", { name: "What to show" }),
    Plan: profileToChoose,
    "What-if": profileToChoose,
    Dispatchers: profileToChoose,
    Layouts: profileToChoose,
    Accuracy: page.getByRole("heading", { name: "No run is stored yet" }),
  };
};

test("every view opens on an empty database, says what to do next, and breaks no rule of accessibility", async ({ page, emptyPlanner }) => {
  await page.goto(emptyPlanner.url);
  for (const view of views) {
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: view }).click();
    await expect(page.getByRole("heading", { level: 1, name: view })).toBeVisible();
    await expect(page).toHaveTitle(`${view} · moeplan`);
    await expect(page.locator("main")).toContainText(/moeplan (calibrate|run|validate)/);
    await expectAccessible(page);
  }
});

test("the address leads back to a view, and what it does not know leads to the first", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}#/layouts`);
  await expect(page.getByRole("heading", { level: 1, name: "Layouts" })).toBeVisible();
  await page.goto(`${emptyPlanner.url}#/accuracy`);
  await expect(page.getByRole("heading", { level: 1, name: "Accuracy" })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole("heading", { level: 1, name: "Layouts" })).toBeVisible();
  await page.goto(`${emptyPlanner.url}#/<img src=x onerror=alert(1)>`);
  await expect(page.getByRole("heading", { level: 1, name: "My job" })).toBeVisible();
  await page.goto(`${emptyPlanner.url}#/accuracy`);
  await page.getByRole("link", { name: "moeplan", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1, name: "My job" })).toBeVisible();
});

test("a phone's width holds every view without scrolling sideways", async ({ page, planner }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await page.goto(planner.url);
  for (const view of views) {
    await page.getByRole("link", { name: view, exact: true }).click();
    await expect(page.getByRole("heading", { level: 1, name: view })).toBeVisible();
    await expect(contentOf(page)[view]!).toBeAttached();
    await expectFits(page);
  }
});

test("light and dark are the system's, or chosen by keyboard and kept", async ({ page, emptyPlanner }) => {
  const look = (): Promise<unknown> => page.evaluate(() => {
    const { backgroundColor, color, colorScheme } = getComputedStyle(document.documentElement);
    return { backgroundColor, color, colorScheme };
  });
  const looksOf = async (system: "light" | "dark"): Promise<unknown> => {
    await page.emulateMedia({ colorScheme: system });
    return look();
  };
  await page.goto(emptyPlanner.url);
  const button = page.getByRole("button", { name: /Theme/ });
  await expect(button).toHaveText("Theme: system");
  const ofSystem = { light: await looksOf("light"), dark: await looksOf("dark") };
  expect(ofSystem.light).toEqual({ backgroundColor: "rgb(251, 251, 250)", color: "rgb(28, 32, 36)", colorScheme: "light dark" });
  expect(ofSystem.dark).toEqual({ backgroundColor: "rgb(21, 24, 27)", color: "rgb(230, 232, 234)", colorScheme: "light dark" });

  await button.focus();
  for (const theme of ["light", "dark"] as const) {
    await page.keyboard.press("Enter");
    await expect(button).toHaveText(`Theme: ${theme}`);
    for (const system of ["light", "dark"] as const) expect(await looksOf(system)).toEqual({ ...ofSystem[theme] as object, colorScheme: theme });
    await expectAccessible(page);
  }
  await page.reload();
  await expect(button).toHaveText("Theme: dark");
  expect(await look()).toEqual({ ...ofSystem.dark as object, colorScheme: "dark" });
});

test("the keyboard skips to the content", async ({ page, emptyPlanner }) => {
  await page.goto(emptyPlanner.url);
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator("main")).toBeFocused();
});

test("a planner that goes away is said, what was seen stays, and it goes on by itself", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await expect(page.getByText("west").first()).toBeVisible();
  await planner.stop("SIGKILL");
  await expect(page.getByText(/does not answer since/)).toBeVisible();
  await expect(page.getByText("west").first()).toBeVisible();
  await expectAccessible(page);
  await planner.restart();
  await expect(page.getByText(/does not answer since/)).toBeHidden();
});

test("a planner that hangs is said to be away in every view, which keeps its answer until it goes on", async ({ context, planner }) => {
  test.setTimeout(120_000);
  const workload = JSON.stringify(workloads[1]);
  const mixtral = JSON.parse(readFileSync(join(root, "deploy/examples/mixtral-8x7b.config.json"), "utf8")) as object;
  const model = JSON.stringify({ ...mixtral, hidden_size: 1024, intermediate_size: 2048, num_hidden_layers: 8 });
  const job = { modelName: "qwen3-30b-a3b", hardware: "h100-sxm:2x8", globalBatch: "64", sequenceLength: "4096" };
  const answers: readonly [string, string][] = [
    [`clusters?profile=west`, "[aria-labelledby=links-title] table"],
    [`curves?profile=west`, ".sample-chart .dots"],
    [`plan?${new URLSearchParams({ profile: "west", workload }).toString()}`, ".candidates table"],
    [`what-if?${new URLSearchParams({ profile: "west", workload, axis1: "layer.batch=1,2" }).toString()}`, "[aria-label^='Time of the best schedule']"],
    [`layouts?${new URLSearchParams({ profile: "west", model, gpus: "8", globalBatch: "32", sequenceLength: "1024" }).toString()}`, "[aria-label^='Layouts, fastest first'] tbody tr"],
    [`job?${new URLSearchParams({ ...job, gpus: "16", to: "megatron" }).toString()}`, "#advice-title"],
    [`dispatchers?${new URLSearchParams({ ...job, gpus: "16", layout: '{"expertParallel":8,"recompute":"FULL"}', axis: "microBatch=1,2" }).toString()}`, "[aria-label^='Step time with each dispatcher']"],
    ["accuracy", ".note.empty"],
  ];
  const tabs: { tab: Page; answer: Locator; away: Locator }[] = [];
  const said: string[] = [];
  for (const [address, shown] of answers) {
    const tab = await context.newPage();
    tab.on("pageerror", (error) => said.push(String(error)));
    await tab.goto(`${planner.url}#/${address}`);
    const answer = tab.locator(shown).first();
    await expect(answer).toBeVisible({ timeout: 30_000 });
    tabs.push({ tab, answer, away: tab.getByText(/does not answer since/) });
  }
  planner.pause();
  for (const { answer, away } of tabs) {
    await expect(away).toBeVisible({ timeout: 15_000 });
    await expect(answer).toBeVisible();
  }
  planner.resume();
  for (const { answer, away } of tabs) {
    await expect(away).toBeHidden({ timeout: 15_000 });
    await expect(answer).toBeVisible();
  }
  expect(said).toEqual([]);
});

test("what is asked of a planner that hangs is answered once it goes on, and nothing old stands under a new name", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/curves?profile=west`);
  const costs = page.locator("select.cost-list");
  await expect(costs).toBeVisible();
  const [first, other] = await Promise.all([0, 3].map(async (index) => (await costs.locator("option").nth(index).getAttribute("value"))!));
  planner.pause();
  await costs.selectOption(other!);
  await expect(page.locator(".curves[aria-busy=true]")).toBeVisible();
  await expect(page.getByText(/does not answer since/)).toBeVisible({ timeout: 15_000 });
  await expect(page.locator("#curve-title")).toHaveText(first!);
  planner.resume();
  await expect(page.locator("#curve-title")).toHaveText(other!, { timeout: 15_000 });
  await expect(page.getByText(/does not answer since/)).toBeHidden({ timeout: 15_000 });
});

test("a view that could not be had from a planner that was away comes once it is back", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await expect(contentOf(page)["Clusters"]!).toBeVisible();
  await planner.stop("SIGKILL");
  await page.getByRole("link", { name: "Accuracy", exact: true }).click();
  await expect(page.getByText("This part of the dashboard could not be loaded")).toBeVisible();
  await planner.restart();
  await expect(contentOf(page)["Accuracy"]!).toBeVisible({ timeout: 15_000 });
  await expect(page.getByText("This part of the dashboard could not be loaded")).toHaveCount(0);
});

test("a proxy that answers for the planner is no planner", async ({ page, planner }) => {
  let status = 200;
  await page.route("**/moeplan.v1.**", (route) => (status === 0 ? route.continue() : route.fulfill({ status, contentType: "text/html", body: "<html>" })));
  await page.goto(`${planner.url}#/clusters`);
  await expect(page.getByRole("alert").first()).toContainText("does not answer");
  status = 502;
  await expect(page.getByRole("alert").first()).toContainText("HTTP 502");
  status = 0;
  await expect(page.getByRole("article").getByRole("heading", { name: "west" })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a browser that blocks storage shows the page, and takes a token", async ({ page, planner }) => {
  const token = moeplan("token", "create", "--db", planner.db, "--name", "eyes", "--role", "plan").trim();
  await page.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, { get: () => { throw new DOMException("blocked", "SecurityError"); } });
    }
  });
  await page.goto(`${planner.url}#/clusters`);
  await page.getByRole("dialog").getByLabel("Token").fill(token);
  await page.getByRole("dialog").getByRole("button", { name: "Go on" }).click();
  await expect(page.getByRole("article").getByRole("heading", { name: "west" })).toBeVisible();
  const theme = page.getByRole("button", { name: /Theme/ });
  await theme.click();
  await expect(theme).toHaveText("Theme: light");
});

test("whoever leaves the token's dialog is not pressed, and can give one later", async ({ page, planner }) => {
  const token = moeplan("token", "create", "--db", planner.db, "--name", "eyes", "--role", "plan").trim();
  await page.goto(`${planner.url}#/clusters`);
  const dialog = page.getByRole("dialog", { name: /asks for a token/ });
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await expectAccessible(page);
  // Views that would ask again by themselves have had the time to.
  await page.waitForTimeout(6000);
  await expect(dialog).toBeHidden();
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Accuracy" }).click();
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Give a token" }).click();
  await dialog.getByLabel("Token").fill(token);
  await dialog.getByRole("button", { name: "Go on" }).click();
  await expect(page.getByRole("heading", { name: "No run is stored yet" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Give a token" })).toBeHidden();
});

test("nothing is asked while nobody looks", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await expect(page.getByRole("table", { name: /Links, fitted/ })).toBeVisible();
  const show = (hidden: boolean): Promise<void> => page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await show(true);
  await page.waitForTimeout(1000);
  let asked = 0;
  page.on("request", () => asked++);
  await page.waitForTimeout(7000);
  expect(asked).toBe(0);
  await show(false);
  await expect.poll(() => asked).toBeGreaterThan(0);
});

test("a planner with tokens is asked with one, which only this tab keeps", async ({ page, context, planner }) => {
  const token = moeplan("token", "create", "--db", planner.db, "--name", "eyes", "--role", "plan").trim();
  await page.goto(`${planner.url}#/clusters`);
  const dialog = page.getByRole("dialog", { name: /asks for a token/ });
  await expect(dialog).toBeVisible();
  await expectAccessible(page);
  await dialog.getByLabel("Token").fill("wrong");
  await dialog.getByRole("button", { name: "Go on" }).click();
  await expect(dialog).toContainText("does not take");
  await dialog.getByLabel("Token").fill(token);
  await dialog.getByRole("button", { name: "Go on" }).click();
  await expect(page.getByText("west").first()).toBeVisible();
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
  expect(page.url()).not.toContain(token);
  const other = await context.newPage();
  await other.goto(`${planner.url}#/clusters`);
  await expect(other.getByRole("dialog", { name: /asks for a token/ })).toBeVisible();
});

test("the first view comes with at most 150 kB of compressed script, all of it the planner's own", async ({ page, planner }) => {
  const sizes: Promise<number>[] = [];
  page.on("requestfinished", (request) => {
    if (request.resourceType() === "script") sizes.push(request.sizes().then(({ responseBodySize }) => responseBodySize));
  });
  await page.goto(planner.url);
  await expect(contentOf(page)["My job"]!).toBeAttached();
  await page.waitForLoadState("networkidle");
  const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
  expect(bytes).toBeGreaterThan(5_000);
  expect(bytes).toBeLessThan(150_000);

  const index = await fetch(planner.url, { headers: { Accept: "text/html" } });
  expect(index.headers.get("content-security-policy")).not.toContain("unsafe");
  const script = /src="([^"]+\.js)"/.exec(await index.text())![1]!;
  const zipped = await page.request.get(new URL(script, planner.url).href, { headers: { "Accept-Encoding": "gzip" } });
  expect(zipped.headers()["content-encoding"]).toBe("gzip");
  expect((await zipped.body()).length).toBeGreaterThan(0);
});
