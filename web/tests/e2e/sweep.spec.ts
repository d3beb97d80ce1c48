// What if: sweeps by a real planner.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Download, Page } from "@playwright/test";

import type { SweepPoint, SweepResponse } from "../../generated/moeplan/v1/planner_service";
import * as text from "../../src/format";
import { expect, expectAccessible, expectFits, hostileName, test, workloads } from "./fixtures";
import { moeplan, temporaryFolder } from "./planner";

interface Example {
  name: string;
  layer: Record<string, unknown>;
}
const workload = workloads[1] as unknown as Example;
const lengths = "layer.sequenceLength=256,512,1024,2048";
const batches = "layer.batch=1,2,4";

const address = (changes: Record<string, string> = {}): string =>
  `#/what-if?${new URLSearchParams({ profile: "west", workload: JSON.stringify(workload), axis1: lengths, axis2: batches, ...changes }).toString()}`;

const points = (page: Page) => page.getByRole("region", { name: /^Points of the sweep/ });
const bestMap = (page: Page) => page.getByRole("application", { name: /^Best schedule over/ });

async function openTable(page: Page): Promise<void> {
  await page.getByText("As a table").click();
  await expect(points(page)).toBeVisible();
}

async function saved(page: Page, button: string | RegExp): Promise<{ name: string; content: string }> {
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: button }).first().click();
  const download: Download = await waiting;
  return { name: download.suggestedFilename(), content: readFileSync((await download.path())!, "utf8") };
}

/** RFC 4180, plainly. */
function parseCsv(text: string): string[][] {
  const records: string[][] = [];
  let record: string[] = [];
  const cell = /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r\n|$)/gy;
  for (let match = cell.exec(text); match !== null && cell.lastIndex <= text.length; match = cell.exec(text)) {
    const value = match[1]!;
    record.push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (match[2] !== ",") {
      if (record.length > 1 || record[0] !== "") records.push(record);
      record = [];
    }
    if (cell.lastIndex === text.length) break;
  }
  return records;
}

/** Numbers as numbers: "5e-07" is "5e-7". */
const comparable = (cell: string): string | number => (cell !== "" && Number.isFinite(Number(cell)) ? Number(cell) : cell);

test("an empty database says what to measure", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}#/what-if`);
  await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toBeVisible();
  await expectAccessible(page);
});

test("what an empty database could not answer is asked again once a profile is stored", async ({ page, planner, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}${address()}`);
  await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toBeVisible();
  const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
  await emptyPlanner.call("ProfileService/PutProfile", { requestId: "first", profile });
  await expect(bestMap(page)).toBeVisible({ timeout: 60_000 });
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("two axes are typed and swept, and give what the command gives", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/what-if`);
  await page.getByLabel("Workload (JSON)").fill(JSON.stringify(workload));
  const axis = (number: number) => page.getByRole("group", { name: `Axis ${number}` });
  await axis(1).getByLabel("Field").fill("layer.sequenceLength");
  await axis(1).getByLabel(/^Values/).fill("256,512,1024,2048");
  await axis(2).getByLabel("Field").fill("layer.batch");
  await axis(2).getByLabel(/^Values/).fill("1, 2, 4");
  await expect(page.getByRole("button", { name: "Sweep 12 points" })).toBeVisible();
  await axis(2).getByLabel(/^Values/).press("Enter");
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await expect(axis(2).getByLabel(/^Values/)).toBeFocused();
  await expect(bestMap(page)).toBeVisible();
  await expect(page.getByRole("application", { name: /^Time of the best schedule over/ })).toBeVisible();
  await expectAccessible(page);

  const folder = temporaryFolder();
  const file = join(folder.path, "workload.json");
  writeFileSync(file, JSON.stringify(workload));
  const command = parseCsv(moeplan("what-if", "--db", planner.db, "--profile-name", "west", "--workload", file, "--sweep", lengths, "--sweep", batches, "--csv"));
  folder.remove();
  const { name, content } = await saved(page, "Save as CSV");
  expect(name).toBe("what-if.csv");
  const ours = parseCsv(content);
  expect(command).toHaveLength(13);
  expect(ours.map((record) => record.slice(0, command[0]!.length).map(comparable))).toEqual(command.map((record) => record.map(comparable)));

  // The table says the same, and leads to the Plan view.
  await openTable(page);
  await expect(points(page).locator("tbody tr")).toHaveCount(12);
  const href = await points(page).locator("tbody tr").nth(5).getByRole("link").first().getAttribute("href");
  const at = JSON.parse(new URLSearchParams(href!.split("?")[1]).get("workload")!) as Example;
  expect(at).toEqual({ ...workload, layer: { ...workload.layer, sequenceLength: 512, batch: 4 } });
  // Every time there does.
  const times = await points(page).locator("tbody tr").nth(5).locator("td").evaluateAll((cells) =>
    cells.filter((cell) => /\d [nµm]?s$/.test(cell.textContent!)).map((cell) => cell.querySelector("a")?.getAttribute("href")));
  expect(times.length).toBeGreaterThanOrEqual(4);
  expect(new Set(times)).toEqual(new Set([href]));
});

test("the keyboard walks the map and opens a point", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address()}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await bestMap(page).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowUp");
  await expect(page.getByText(/layer.batch 2, layer.sequenceLength 512:.* takes /)).toBeVisible();
  // What is told stays when the map is left, so that nothing below moves under a click.
  const says = page.locator(".heat-says").first();
  const before = { words: await says.innerText(), ...(await says.boundingBox())! };
  await bestMap(page).blur();
  expect({ words: await says.innerText(), ...(await says.boundingBox())! }).toEqual(before);
  await bestMap(page).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Plan" })).toBeVisible();
  const opened = JSON.parse(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("workload")!) as Example;
  expect(opened.layer).toMatchObject({ sequenceLength: 512, batch: 2 });
  await page.goBack();
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  // Enter opens what is told: the cell under the pointer before the keyboard's.
  await bestMap(page).focus();
  await page.locator(".heat-pickable").first().hover({ position: { x: 10, y: 10 } });
  await expect(says).toContainText("layer.batch 4, layer.sequenceLength 256:");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Plan" })).toBeVisible();
  expect((JSON.parse(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("workload")!) as Example).layer).toMatchObject({ sequenceLength: 256, batch: 4 });
});

test("near ties are the planner's own", async ({ page, planner }) => {
  const sweep = { workload, profileName: "west", axes: ["layer.sequenceLength=512,1024,2048,4096", "layer.batch=1,2,4"] };
  const answer = await planner.call<SweepResponse>("PlannerService/Sweep", sweep);
  expect(answer.points.some(({ indistinctS }) => indistinctS > 0)).toBe(true);
  // A simpler plan stands before a faster one only where the two cannot be told apart.
  for (const { row, runnerUp, indistinctS } of answer.points) expect(row!.best!.predictedTimeS - (runnerUp?.predictedTimeS ?? Infinity)).toBeLessThanOrEqual(indistinctS);
  // Another word of the planner's is another map: a second and nothing by turns, where all points take milliseconds at most.
  const swept = answer.points.map((point, index) => ({ ...point, indistinctS: index % 2 }));
  await page.route("**/*.PlannerService/Sweep", (route) => route.fulfill({ json: { ...answer, points: swept } }));
  const isTie = ({ row, runnerUp, indistinctS }: SweepPoint): boolean => runnerUp !== undefined && runnerUp.predictedTimeS - row!.best!.predictedTimeS <= indistinctS;
  expect(new Set(swept.map(isTie)).size).toBe(2);
  await page.goto(`${planner.url}${address({ axis1: sweep.axes[0]!, axis2: sweep.axes[1]! })}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await bestMap(page).focus();
  const said = page.locator(".heat-says").first();
  for (const [index, point] of swept.entries()) {
    if (index % 3 === 0) {
      await page.keyboard.press("PageDown");
      if (index > 0) await page.keyboard.press("ArrowRight");
    } else {
      await page.keyboard.press("ArrowUp");
    }
    await expect(said).toContainText(`layer.batch ${[1, 2, 4][index % 3]}, layer.sequenceLength ${[512, 1024, 2048, 4096][Math.floor(index / 3)]}:`);
    expect(/near a tie|a near tie|cannot tell apart/.test(await said.innerText())).toBe(isTie(point));
  }
});

test("one axis is a line, beside the baseline and the runner-up", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ axis2: "" })}`);
  await expect(page.getByText("Swept 4 points.")).toBeVisible();
  await expect(page.getByRole("img", { name: /^Time of the best schedule over layer.sequenceLength: .* is best at/ })).toBeVisible();
  await expectAccessible(page);
  // By keyboard to a value, and to its plan.
  const chart = page.getByRole("application", { name: /^Time of the best schedule/ });
  await chart.focus();
  await expect(page.getByText(/^layer.sequenceLength 256: /)).toBeVisible();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByText(/^layer.sequenceLength 512: /)).toBeVisible();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Plan" })).toBeVisible();
  expect((JSON.parse(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("workload")!) as Example).layer).toMatchObject({ sequenceLength: 512 });
  await page.goBack();
  await expect(page.getByText("Swept 4 points.")).toBeVisible();

  // Enter opens what is told, be it by the pointer that rests on the chart.
  await chart.focus();
  const { x, y, width } = (await chart.boundingBox())!;
  for (let across = width - 20; across > 0 && !(await page.getByText(/^layer.sequenceLength 2048: /).isVisible()); across -= 15) await page.mouse.move(x + across, y + 100);
  await expect(page.getByText(/^layer.sequenceLength 2048: /)).toBeVisible();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Plan" })).toBeVisible();
  expect((JSON.parse(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("workload")!) as Example).layer).toMatchObject({ sequenceLength: 2048 });
  await page.goBack();
  await expect(page.getByText("Swept 4 points.")).toBeVisible();
  await openTable(page);
  await expect(points(page).locator("tbody tr")).toHaveCount(4);
  await points(page).getByRole("button", { name: "time", exact: true }).click();
  await points(page).getByRole("button", { name: "time", exact: true }).click();
  await expect(points(page).locator("tbody tr").first().locator("td").first()).toHaveText("2048");
});

test("a third axis is chosen, and axes change places, in the address", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ axis1: "layer.sequenceLength=256,512", axis3: "phase=FORWARD,TRAINING" })}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await page.getByRole("combobox", { name: "phase", exact: true }).selectOption("TRAINING");
  await expect(page).toHaveURL(/at=1/);
  await bestMap(page).focus();
  const says = page.getByText(/layer.batch 1, layer.sequenceLength 256:/);
  const training = await says.innerText();
  await page.getByRole("combobox", { name: "phase", exact: true }).selectOption("FORWARD");
  await bestMap(page).focus();
  await expect(says).toBeVisible();
  await expect(says).not.toHaveText(training, { useInnerText: true });
  await page.getByRole("combobox", { name: "Across", exact: true }).selectOption("phase");
  await expect(page.getByRole("application", { name: /^Best schedule over phase and layer.batch/ })).toBeVisible();
  await page.getByRole("combobox", { name: "Up", exact: true }).selectOption("phase");
  await expect(page.getByRole("application", { name: /^Best schedule over layer.batch and phase/ })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("application", { name: /^Best schedule over layer.batch and phase/ })).toBeVisible();
});

test("a point that changes the profile, which no plan holds, says what it is priced from", async ({ page, planner }) => {
  const axis2 = "cluster.nic.scale=0.25,1,2";
  const { points: answered } = await planner.call<SweepResponse>("PlannerService/Sweep", { workload, profileName: "west", axes: [lengths, axis2] });
  await page.goto(`${planner.url}${address({ axis2 })}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await expect(page.getByText("no plan holds cluster.nic.scale, which no workload has")).toBeVisible();
  await page.getByText("As a table").click();
  const { row, costs } = answered[3]!;
  const time = page.getByRole("region", { name: /^Points of the sweep/ }).locator("tbody tr").nth(3).getByRole("link", { name: text.seconds(row!.predictedTimeS!), exact: true });
  await time.press("Enter");
  const point = page.getByRole("region", { name: "Point 4", exact: true });
  await expect(page.locator("#point-title")).toBeFocused();
  await expect(point).toContainText("0.25");
  await expect(point).toContainText(text.seconds(row!.predictedTimeS!));
  await expect(point.locator(".priced-from a")).toHaveText(costs);
  await expectAccessible(page);
  await page.reload();
  await expect(point.locator(".priced-from a")).toHaveText(costs);
  await point.locator(".priced-from a").first().click();
  await expect(page.locator("#curve-title")).toHaveText(costs[0]!);
  await page.goBack();
  // Another question has other points.
  await page.getByRole("button", { name: "Sweep 12 points" }).click();
  await expect(point).toHaveCount(0);
});

test("a refused axis is marked, and so is a workload", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ axis2: "layer.batsh=1,2" })}`);
  await expect(page.getByRole("alert")).toContainText("Axis 2");
  const field = page.getByRole("group", { name: "Axis 2" }).getByLabel("Field");
  await expect(field).toHaveAttribute("aria-invalid", "true");
  await expect(page.getByRole("group", { name: "Axis 1" }).getByLabel("Field")).not.toHaveAttribute("aria-invalid");
  await expectAccessible(page);
  await field.fill("layer.batch");
  await field.press("Enter");
  await expect(page.getByText(/^Swept 8 points/)).toBeVisible();

  const text = page.getByLabel("Workload (JSON)");
  await text.fill("{");
  await expect(text).toHaveAttribute("aria-invalid", "true");
  await page.goto(`${planner.url}${address({ workload: '{"layer": 7}' })}`);
  await expect(page.getByRole("alert")).toBeVisible();
});

test("more points than the planner takes are refused in its words", async ({ page, planner }) => {
  const many = Array.from({ length: 70 }, (_, index) => index + 1).join(",");
  await page.goto(`${planner.url}${address({ axis1: `layer.sequenceLength=${many}`, axis2: `layer.batch=${many}` })}`);
  await expect(page.getByRole("alert")).toContainText("4096");
});

test("points without a plan say why", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ axis2: "layout.tensorParallel=2,64" })}`);
  await expect(page.getByText("Swept 8 points.")).toBeVisible();
  await openTable(page);
  await expect(points(page).getByText(/^none: .*64/).first()).toBeVisible();
});

test("where nothing was measured that a point needs, the page says so and offers estimates", async ({ page, planner }) => {
  // 4 ranks of 2 experts each were not measured.
  const unmeasured = { ...workload, layout: { tensorParallel: 1, expertParallel: 2, expertShardingParallel: 1 } };
  await page.goto(`${planner.url}${address({ workload: JSON.stringify(unmeasured), axis2: "" })}`);
  await expect(page.getByText(/^No point has a plan\. The first: .*lacks/)).toBeVisible();
  await expectAccessible(page);
  await page.getByRole("link", { name: "Estimate costs that were not measured" }).click();
  await expect(page.getByText(/^Swept 4 points/)).toBeVisible();
  await expect(page.getByText(/^No point has a plan/)).toHaveCount(0);
});

test("numbers beside the workload change it", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address()}`);
  await page.getByLabel("Top-k").fill("1");
  await expect(page.getByLabel("Workload (JSON)")).toHaveValue(/"topK": 1,/);
});

test("a sweep is cancelled, and what is there stays", async ({ page, planner }) => {
  const lengthsOf = Array.from({ length: 64 }, (_, index) => (index + 1) * 64).join(",");
  await page.goto(`${planner.url}${address({ axis1: `layer.sequenceLength=${lengthsOf}`, axis2: "layer.batch=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16" })}`);
  await expect(page.getByText(/^Sweeping: [1-9]\d* of 1,024 points/)).toBeVisible();
  await expect(bestMap(page)).toBeVisible();
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByText(/^Cancelled after \d+ of 1,024 points/)).toBeVisible();
  await expect(bestMap(page)).toBeVisible();
  await expect(page.getByRole("button", { name: "Sweep again" })).toBeVisible();
});

test("a sweep goes on once the planner is back", async ({ page, planner }) => {
  const lengthsOf = Array.from({ length: 32 }, (_, index) => (index + 1) * 64).join(",");
  await page.goto(`${planner.url}${address({ axis1: `layer.sequenceLength=${lengthsOf}`, axis2: "layer.batch=1,2,3,4,5,6,7,8" })}`);
  await expect(page.getByText(/^Sweeping: [1-9]\d* of 256 points/)).toBeVisible();
  await planner.stop("SIGKILL");
  await expect(page.getByText(/going on once the planner is back/)).toBeVisible();
  await expect(bestMap(page)).toBeVisible();
  await planner.restart();
  await expect(page.getByText("Swept 256 points.")).toBeVisible({ timeout: 45_000 });
});

test("maps are saved as files that need no page", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address()}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  const { name, content } = await saved(page, /^Save as SVG: Best/);
  expect(name).toBe("best-schedule.svg");
  expect(content).not.toMatch(/class=|var\(/);
  const shown = await page.context().newPage();
  await shown.goto(`data:image/svg+xml;base64,${Buffer.from(content).toString("base64")}`);
  const drawn = await shown.evaluate(() => ({
    title: document.querySelector("title")?.textContent,
    fills: new Set(Array.from(document.querySelectorAll("path"), (path) => getComputedStyle(path).fill)).size,
    broken: document.querySelector("parsererror") !== null,
  }));
  expect(drawn).toMatchObject({ title: "Best schedule over layer.sequenceLength and layer.batch", broken: false });
  expect(drawn.fills).toBeGreaterThan(1);
});

test("hostile names are text, in files too", async ({ page, planner }) => {
  const named = JSON.stringify({ ...workload, name: hostileName });
  await page.goto(`${planner.url}${address({ workload: named })}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await page.goto(`${planner.url}${address({ axis2: `${hostileName}=1` })}`);
  await expect(page.getByRole("alert")).toContainText("<img src=x");
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
});

test("a narrow page and a dark one hold it all", async ({ page, planner }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(`${planner.url}${address({ sort: "time" })}`);
  await expect(page.getByText("Swept 12 points.")).toBeVisible();
  await expectFits(page);
  await expectAccessible(page);
});
