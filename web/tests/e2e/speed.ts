// How fast the dashboard is over 100 profiles and 100,000 samples: `npm run speed`. What they are is in speed_database.ts.
//
// First views count from the start of the navigation, with nothing cached by the browser, to the frame that shows the view's content; their
// median is held against 1 s. Interactions count from the input event to the end of the frame that shows what came of it,
// the planner's answer among it where it takes one; their 95th percentile is held against 100 ms. Planning, sweeping and
// ranking are computation, whose time depends on what is asked: of first views all but the wait for it is held against the aim,
// of interactions what follows the answer's arrival, and the whole stands beside it.
//
// MOEPLAN_SPEED_DB: a database to make once and to keep. MOEPLAN_SPEED_URL: a dashboard over such a one that is there already.
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { chromium, expect, test, type Browser, type Page } from "@playwright/test";

import { Planner, root, temporaryFolder } from "./planner";
import { fill, largeCost, largeProfile, otherProfile, samplesOfCost, workloadOf } from "./speed_database";
import { firstView, interaction, patienceMs, type Interaction, type Method, type Timed } from "./stopwatch";

const firstViewAimMs = 1000;
const interactionAimMs = 100;
const firstViews = 7;
const repetitions = 21;

interface Measured {
  what: string;
  /** Held against the aim: all of it, all but the wait for the answer, or what follows that. */
  held: "all" | "beside" | "after";
  aimMs: number;
  times: Timed[];
}

const address = (view: string, params: Readonly<Record<string, string>> = {}): string => `#/${view}?${new URLSearchParams(params).toString()}`;
const workloadText = (index: number): string => JSON.stringify(workloadOf(index));
const model = JSON.stringify(JSON.parse(readFileSync(join(root, "deploy/examples/mixtral-8x7b.config.json"), "utf8")));
const large = { profile: largeProfile, cost: largeCost };
const sweepOf = (index: number): Record<string, string> => ({
  profile: largeProfile, workload: workloadText(index), axis1: "layer.sequenceLength=256,512,1024,2048,4096,8192", axis2: "layer.batch=1,2,3,4",
});
const ranking = (globalBatch: number): Record<string, string> => ({
  profile: largeProfile, model, gpus: "64", globalBatch: String(globalBatch), sequenceLength: "4096",
});

// ---- First views

interface FirstView {
  what: string;
  held: Measured["held"];
  method: Method;
  /** By the round, so that no answer is one that the planner remembers. */
  at: (round: number) => string;
  /** What must be there. */
  shown: readonly string[];
}

/** No other list is as long. */
const optionOfProfile = "select option:nth-child(50)";

const everyFirstView: readonly FirstView[] = [
  { what: "My job, its form", held: "all", method: "ListProfiles", at: () => address("job"), shown: ["form textarea", optionOfProfile] },
  { what: "Clusters", held: "all", method: "GetLinks", at: () => address("clusters", { profile: largeProfile }), shown: ["[aria-labelledby=links-title] table", ".cluster-list li"] },
  { what: `Curves, a cost of ${samplesOfCost.toLocaleString("en")} samples`, held: "all", method: "GetCurve", at: () => address("curves", large), shown: [".sample-chart .dots", "#samples-title ~ .table-scroll tbody tr"] },
  { what: "Curves, with all of them shown", held: "all", method: "GetCurve", at: () => address("curves", { ...large, samples: String(samplesOfCost) }), shown: [".sample-chart .dots", "#samples-title ~ .table-scroll tbody tr"] },
  { what: "Plan, its form", held: "all", method: "ListProfiles", at: () => address("plan"), shown: [".plan-question button[type=submit]", optionOfProfile] },
  { what: "Plan, of a workload", held: "all", method: "Plan", at: (round) => address("plan", { profile: largeProfile, workload: workloadText(100 + round) }), shown: [".timeline-box-area svg", ".candidates table tbody tr"] },
  { what: "What-if, its form", held: "all", method: "ListProfiles", at: () => address("what-if"), shown: ["form textarea", optionOfProfile] },
  { what: "What-if, of 24 points", held: "beside", method: "Sweep", at: (round) => address("what-if", sweepOf(200 + round)), shown: [".pair .card:nth-child(2) .heat-box svg"] },
  { what: "Dispatchers, its form", held: "all", method: "ListProfiles", at: () => address("dispatchers"), shown: ["form textarea", optionOfProfile] },
  { what: "Layouts, its form", held: "all", method: "ListProfiles", at: () => address("layouts"), shown: ["form textarea", optionOfProfile] },
  { what: "Layouts, of 64 GPUs", held: "beside", method: "RankLayouts", at: (round) => address("layouts", ranking(128 + 64 * round)), shown: [".table-scroll tbody tr", ".chart svg"] },
  { what: "Accuracy", held: "all", method: "ListRuns", at: () => address("accuracy"), shown: [".chart svg .shape", ".table-scroll tbody tr"] },
];

async function measureFirstView(browser: Browser, url: string, { what, held, method, at, shown }: FirstView): Promise<Measured> {
  const times: Timed[] = [];
  for (let round = 0; round < firstViews; ++round) times.push(await firstView(browser, `${url}${at(round)}`, shown, method));
  return { what, held, aimMs: firstViewAimMs, times };
}

// ---- Interactions

const settled = (page: Page): Promise<void> => page.waitForTimeout(120);

interface Repeated extends Omit<Interaction, "act"> {
  what: string;
  held?: Measured["held"];
  /** Brings the page to where it begins; not counted. */
  before?: (round: number) => Promise<unknown>;
  act: (round: number) => Promise<unknown>;
}

async function repeat(page: Page, { what, held = "all", before, act, ...watched }: Repeated): Promise<Measured> {
  const times: Timed[] = [];
  for (let round = 0; round < repetitions; ++round) {
    await before?.(round);
    await settled(page);
    times.push(await interaction(page, { ...watched, act: () => act(round) }));
  }
  return { what, held, aimMs: interactionAimMs, times };
}

/** For what a view loads beside its first content. */
const loadedMs = 2000;

async function open(page: Page, url: string, hash: string, shown: string): Promise<void> {
  await page.goto("about:blank");
  await page.goto(`${url}${hash}`);
  await expect(page.locator(shown).first()).toBeVisible({ timeout: 20_000 });
  await page.waitForTimeout(loadedMs);
}

/** Clicks a table's heads in turn. */
const sortBy = (page: Page, table: string, heads: readonly string[]) => (round: number): Promise<void> =>
  page.locator(`${table} thead button`, { hasText: heads[round % heads.length]! }).first().click();

async function onClusters(page: Page, url: string): Promise<Measured[]> {
  await open(page, url, address("clusters", { profile: largeProfile }), "[aria-labelledby=links-title] table");
  const search = page.locator(".cluster-list input");
  const article = page.locator("article");
  const measured = [
    await repeat(page, {
      what: "Clusters: typing a letter into the filter", eventType: "input", shown: ".cluster-list [role=status]",
      before: () => search.fill(""), act: (round) => search.press(String(round % 9 + 1)),
    }),
    await repeat(page, {
      what: "Clusters: the next page of the list", eventType: "click", shown: ".cluster-list ul",
      before: () => search.fill(""), act: (round) => page.locator(".cluster-list .pager button", { hasText: round % 2 === 0 ? "Next" : "Previous" }).click(),
    }),
    await repeat(page, {
      what: "Clusters: another cluster, its name and facts", eventType: "click", shown: "article .facts",
      act: (round) => page.locator(".cluster-list a").nth(round % 2 === 0 ? 3 : 4).click(),
    }),
    await repeat(page, {
      what: "Clusters: another cluster, its links", eventType: "click", shown: "[aria-labelledby=links-title] table", method: "GetLinks",
      act: (round) => page.locator(".cluster-list a").nth(round % 2 === 0 ? 5 : 6).click(),
    }),
  ];
  await search.fill(largeProfile);
  await page.locator(".cluster-list a").first().click();
  const rejected = article.locator("summary", { hasText: "set aside" });
  await expect(rejected).toBeVisible();
  measured.push(await repeat(page, {
    what: "Clusters: samples that were set aside", eventType: "click", shown: "details[open] table tbody", method: "ListRejectedSamples",
    before: async (round) => { if (round > 0) await rejected.click(); }, act: () => rejected.click(),
  }));
  return measured;
}

async function onCurves(page: Page, url: string): Promise<Measured[]> {
  const table = "#samples-title ~ .table-scroll";
  await open(page, url, address("curves", { ...large, samples: String(samplesOfCost) }), ".sample-chart svg");
  const list = page.locator("select.cost-list");
  const search = page.getByLabel("Cost names contain");
  const walk = page.getByLabel(/Walk the samples/);
  const all = `of ${samplesOfCost.toLocaleString("en")} samples`;
  let pointed = { x: 0, y: 0 };
  const names = await list.locator("option").evaluateAll((options) => options.map((option) => (option as HTMLOptionElement).value));
  const others = names.filter((name) => name !== largeCost);
  const another = (what: string, cost: (round: number) => string): Promise<Measured> =>
    repeat(page, { what, eventType: "change", shown: "#curve-title", method: "GetCurve", act: (round) => list.selectOption(cost(round)) });
  const measured = [
    await repeat(page, {
      what: "Curves: typing a letter into the costs' filter", eventType: "input", shown: ".cost-list",
      before: () => search.fill(""), act: (round) => search.press("248"[round % 3]!),
    }),
  ];
  await search.fill("");
  await walk.press("Home");
  measured.push(
    await repeat(page, { what: `Curves: the next ${all} by keyboard`, eventType: "input", shown: ".readout", act: () => walk.press("ArrowRight") }),
    await repeat(page, {
      what: `Curves: pointing at one ${all}`, eventType: "pointermove", shown: ".readout",
      before: async (round) => {
        // To another one each time, far enough from the one before.
        await walk.fill(String((round * 389) % samplesOfCost));
        const mark = (await page.locator(".sample-chart .current circle").first().boundingBox())!;
        await page.mouse.move(mark.x, mark.y - 200);
        await walk.press("Escape");
        await page.mouse.move(mark.x + 6, mark.y - 60);
        pointed = { x: mark.x + mark.width / 2, y: mark.y + mark.height / 2 };
      },
      act: () => page.mouse.move(pointed.x, pointed.y),
    }),
    await repeat(page, {
      what: `Curves: where one ${all} comes from`, eventType: "keydown", shown: table,
      before: (round) => walk.fill(String(((round + 1) * 1237) % samplesOfCost)), act: () => walk.press("Enter"),
    }),
    await repeat(page, {
      what: `Curves: the next page ${all}`, eventType: "click", shown: `${table} tbody`,
      act: () => page.locator(".curve .pages button", { hasText: "Next" }).click(),
    }),
    await repeat(page, { what: `Curves: another order ${all}`, eventType: "click", shown: table, act: sortBy(page, table, ["Median", "Residual", "Host", "Request"]) }),
    await repeat(page, {
      what: `Curves: one kind ${all}`, eventType: "change", shown: table,
      act: (round) => page.getByRole("combobox", { name: "Show", exact: true }).selectOption(round % 2 === 0 ? "set aside" : ""),
    }),
  );
  await page.evaluate(() => { location.hash = location.hash.replace(/&(samples|sort|page|sample|kind)=[^&]*/g, ""); });
  await page.waitForTimeout(loadedMs);
  measured.push(
    await another(`Curves: another cost, one ${all} among them, 500 of them drawn`, (round) => (round % 2 === 0 ? others[0]! : largeCost)),
    await another("Curves: another cost, each of 600 to 2,000 samples", (round) => others[1 + (round % 5)]!),
    await repeat(page, {
      what: "Curves: comparing with another profile", eventType: "change", shown: "#compare-title", method: "GetCurve",
      act: (round) => page.getByLabel("Compare with").selectOption(otherProfile(round + 1)),
    }),
  );
  await open(page, url, address("curves", large), ".sample-chart svg");
  measured.push(
    await repeat(page, {
      what: `Curves: showing ${all.replace("of ", "all of ")}, not 500`, eventType: "click", shown: "#samples-title ~ p", method: "GetCurve",
      before: async (round) => {
        if (round > 0) await page.goBack();
        await page.waitForTimeout(loadedMs / 4);
      },
      act: () => page.getByRole("button", { name: /^Show up to/ }).click(),
    }),
    await another(`Curves: another cost, one ${all} among them, all of them drawn`, (round) => (round % 2 === 0 ? others[0]! : largeCost)),
  );
  return measured;
}

async function onPlan(page: Page, url: string): Promise<Measured[]> {
  await open(page, url, address("plan", { profile: largeProfile, workload: workloadText(1) }), ".timeline-box-area svg");
  const timeline = page.locator(".timeline-box-area");
  const length = page.locator('[data-field="layer.sequenceLength"]');
  await timeline.focus();
  return [
    await repeat(page, { what: "Plan: the next task by keyboard", eventType: "keydown", shown: ".timeline-says", act: (round) => timeline.press(round % 2 === 0 ? "ArrowDown" : "ArrowUp") }),
    await repeat(page, { what: "Plan: nearer to the timeline", eventType: "keydown", shown: ".timeline-tools", before: () => timeline.press("0"), act: () => timeline.press("+") }),
    await repeat(page, { what: "Plan: sorting the candidates", eventType: "click", shown: ".candidates .table-scroll", act: sortBy(page, ".candidates", ["Predicted", "Compute", "Candidate"]) }),
    await repeat(page, {
      what: "Plan: another candidate's timeline", eventType: "click", shown: ".timeline-box-area",
      act: (round) => page.locator(".candidates button.pick[aria-pressed=false]").nth(round % 5).click(),
    }),
    await repeat(page, {
      what: "Plan: planning another workload", held: "after", eventType: "keydown", shown: ".candidates .table-scroll", method: "Plan",
      before: (round) => length.fill(String(128 * (round + 5))), act: () => length.press("Enter"),
    }),
  ];
}

async function onSweep(page: Page, url: string): Promise<Measured[]> {
  await open(page, url, address("what-if", { ...sweepOf(2), sort: "time" }), ".heat-box svg");
  const points = '[aria-label^="Points of the sweep"]';
  const map = page.locator(".heat-box").first();
  const across = page.getByLabel("Across");
  const values = page.getByRole("group", { name: "Axis 2" }).getByLabel(/^Values/);
  return [
    await repeat(page, { what: "What-if: sorting 24 points", eventType: "click", shown: points, act: sortBy(page, points, ["layer.batch", "time"]) }),
    await repeat(page, { what: "What-if: the next point by keyboard", eventType: "keydown", shown: ".heat-says", before: () => map.focus(), act: (round) => map.press(round % 2 === 0 ? "ArrowRight" : "ArrowLeft") }),
    await repeat(page, { what: "What-if: the other field across", eventType: "change", shown: ".heat-box svg", act: (round) => across.selectOption(String((round + 1) % 2)) }),
    await repeat(page, {
      what: "What-if: sweeping 12 other points", held: "after", eventType: "keydown", shown: ".heat-box svg", method: "Sweep",
      before: (round) => values.fill(`${round + 5},${round + 7}`), act: () => values.press("Enter"),
    }),
  ];
}

async function onLayouts(page: Page, url: string): Promise<Measured[]> {
  await open(page, url, address("layouts", ranking(64)), ".table-scroll tbody tr");
  const layouts = '[aria-label^="Layouts, fastest first"]';
  const batch = page.getByLabel(/^Global batch/);
  return [
    await repeat(page, { what: "Layouts: sorting them", eventType: "click", shown: layouts, act: sortBy(page, layouts, ["MFU", "memory"]) }),
    await repeat(page, {
      what: "Layouts: ranking those of another batch", held: "after", eventType: "keydown", shown: layouts, method: "RankLayouts",
      before: (round) => batch.fill(String(1024 + 64 * round)), act: () => batch.press("Enter"),
    }),
  ];
}

async function onAccuracy(page: Page, url: string): Promise<Measured[]> {
  await open(page, url, address("accuracy", { sort: "run" }), ".chart svg .shape");
  const table = '[aria-label^="Runs, last stored"]';
  const schedule = page.getByRole("combobox", { name: "Schedule" });
  const schedules = await schedule.locator("option").evaluateAll((options) => options.map((option) => (option as HTMLOptionElement).value));
  const measured = [
    await repeat(page, { what: "Accuracy: runs of one schedule", eventType: "change", shown: table, act: (round) => schedule.selectOption(schedules[(round + 1) % schedules.length]!) }),
    await repeat(page, { what: "Accuracy: sorting the runs", eventType: "click", shown: table, act: sortBy(page, table, ["measured", "error"]) }),
  ];
  await schedule.selectOption("");
  measured.push(await repeat(page, {
    what: "Accuracy: one run", eventType: "click", shown: "[aria-labelledby=run-title] .facts", method: "GetRun",
    act: (round) => page.locator(`${table} tbody th a`).nth(round % 2).click(),
  }));
  return measured;
}

// ---- What is printed

const sorted = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);
const median = (values: readonly number[]): number => sorted(values)[Math.floor(values.length / 2)]!;
/** By the nearest rank. */
const percentile95 = (values: readonly number[]): number => sorted(values)[Math.ceil(0.95 * values.length) - 1]!;

const heldOf: Record<Measured["held"], (time: Timed) => number> = {
  all: ({ wholeMs }) => wholeMs,
  beside: ({ wholeMs, answerMs }) => wholeMs - answerMs!,
  after: ({ ownMs }) => ownMs!,
};

function print(title: string, judge: (values: readonly number[]) => number, judged: string, all: readonly Measured[]): string[] {
  const width = Math.max(...all.map(({ what }) => what.length));
  const row = (...cells: string[]): string => [cells[0]!.padEnd(width), ...cells.slice(1).map((cell) => cell.padStart(8))].join(" ");
  const lines = [title, row("", "median", "p95", "largest", "aim", judged, "whole", "page's")];
  const missed: string[] = [];
  for (const measured of all) {
    const { what, aimMs, held, times } = measured;
    const values = times.map(heldOf[held]);
    const isMet = judge(values) <= aimMs;
    if (!isMet) missed.push(what);
    const own = times.flatMap(({ ownMs }) => (ownMs === null ? [] : [ownMs]));
    lines.push(row(
      what, median(values).toFixed(0), percentile95(values).toFixed(0), Math.max(...values).toFixed(0), String(aimMs), isMet ? "met" : "MISSED",
      held !== "all" ? median(times.map(({ wholeMs }) => wholeMs)).toFixed(0) : "", own.length === 0 ? "all" : median(own).toFixed(0),
    ));
  }
  console.log(`\n${lines.join("\n")}\n`);
  return missed;
}

/** So that figures of two machines, or of a quiet and a busy one, can be compared. */
async function printYardstick(page: Page): Promise<void> {
  const ms = await page.evaluate(() => Array.from({ length: 9 }, () => {
    const numbers = Array.from({ length: 200_000 }, (_, index) => Math.sin(index));
    const began = performance.now();
    numbers.sort((a, b) => a - b);
    return performance.now() - began;
  }));
  console.log(`\nHere the browser sorts 200,000 numbers in ${median(ms).toFixed(0)} ms, at most ${Math.max(...ms).toFixed(0)} ms of ${ms.length} times.\n`);
}

test("speed", async ({}, info) => {
  const folder = temporaryFolder();
  const kept = process.env["MOEPLAN_SPEED_DB"];
  const there = process.env["MOEPLAN_SPEED_URL"];
  const db = join(folder.path, "speed.db");
  const isFull = kept !== undefined && existsSync(kept);
  // A planner that writes plans and runs down would change what is kept.
  if (isFull) copyFileSync(kept, db);
  const planner = there === undefined ? await Planner.start(db, "--log-level", "warning") : null;
  const browser = await chromium.launch(info.project.use.launchOptions ?? {});
  try {
    if (planner !== null && !isFull) {
      await fill(planner);
      if (kept !== undefined) {
        await planner.stop();
        copyFileSync(db, kept);
        await planner.restart();
      }
    }
    const url = there ?? planner!.url;
    const first: Measured[] = [];
    for (const one of everyFirstView) first.push(await measureFirstView(browser, url, one));
    const ofWhat = "ms; \"whole\": median of all of it where a part is held against the aim; \"page's\": median of that part";
    const missed = print(`First views, ${firstViews} of each: ${ofWhat}`, median, "median", first);
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    page.setDefaultTimeout(patienceMs);
    await printYardstick(page);
    for (const [view, measure] of Object.entries({ Clusters: onClusters, Curves: onCurves, Plan: onPlan, "What-if": onSweep, Layouts: onLayouts, Accuracy: onAccuracy })) {
      missed.push(...print(`${view}, interactions, ${repetitions} of each: ${ofWhat}`, percentile95, "p95", await measure(page, url)));
    }
    expect(missed).toEqual([]);
  } finally {
    await browser.close();
    await planner?.stop();
    folder.remove();
  }
});
