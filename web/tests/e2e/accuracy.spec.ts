// Predictions against the clock: runs as `moeplan run` and jobs report them.
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import type { Run } from "../../generated/moeplan/v1/planner_service";
import { clusterFile, expect, expectAccessible, expectFits, hold, hostileName, test, workloads } from "./fixtures";
import { moeplan, Planner, temporaryFolder } from "./planner";

/** Plans of workloads, run on the simulated cluster and reported. */
function reportRuns(planner: Planner, asked: readonly object[]): void {
  const folder = temporaryFolder();
  const workload = join(folder.path, "workload.json");
  const plan = join(folder.path, "plan.json");
  for (const one of asked) {
    writeFileSync(workload, JSON.stringify(one));
    writeFileSync(plan, moeplan("plan", "--planner", planner.grpcAddress, "--profile-name", "west", "--workload", workload, "--json"));
    moeplan("run", "--plan", plan, "--simulated", clusterFile, "--planner", planner.grpcAddress, "--json");
  }
  folder.remove();
}

const runTable = (page: Page) => page.getByRole("region", { name: /^Runs,/ });

async function openTable(page: Page): Promise<void> {
  await page.getByText("As a table").click();
  await expect(runTable(page)).toBeVisible();
}

test("an empty database says how to come by the first run", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}#/accuracy`);
  await expect(page.getByRole("heading", { name: "No run is stored yet" })).toBeVisible();
  await expect(page.getByText("moeplan run --local 4 --plan plan.json --planner HOST:PORT")).toBeVisible();
  await expect(page.getByText("moeplan validate --workloads grid.json --local 4 --db moeplan.db")).toBeVisible();
  await expectAccessible(page);
});

test("reported runs lie beside what was predicted, by schedule, by profile and each", async ({ page, planner }) => {
  test.setTimeout(180_000);
  reportRuns(planner, workloads.slice(0, 3));
  const { runs } = await planner.call<{ runs: Run[] }>("PlannerService/ListRuns", {});
  expect(runs).toHaveLength(3);

  await page.goto(`${planner.url}#/accuracy`);
  await expect(page.getByText(/^3 runs: median error/)).toBeVisible();
  await expect(page.getByRole("img", { name: /^Measured over predicted time of 3 runs/ })).toBeVisible();
  await expect(page.getByRole("img", { name: /^Error of 3 runs over the time/ })).toBeVisible();
  await expect(page.getByRole("region", { name: /^Error by profile/ }).getByRole("row", { name: /west/ })).toContainText("3");
  await openTable(page);
  await expect(runTable(page).getByRole("row")).toHaveCount(4);
  await expectAccessible(page);

  // The error that the page shows is that of the times that the planner answers.
  const last = runs[0]!;
  const error = ((last.predictedTimeS - last.measuredTimeS) / last.measuredTimeS) * 100;
  const row = runTable(page).getByRole("row").filter({ has: page.getByRole("rowheader", { name: String(last.run), exact: true }) });
  await expect(row).toContainText(last.workloadName);
  await expect(row).toContainText(`${error > 0 ? "+" : "−"}${Math.abs(Number(error.toPrecision(3)))} %`);
  await expect(row.getByRole("link", { name: /^west \d+$/ })).toHaveAttribute("href", new RegExp(`^#/curves\\?profile=west&version=${last.profileVersion}$`));

  await row.getByRole("link", { name: String(last.run), exact: true }).click();
  const details = page.getByRole("region", { name: `Run ${last.run}` });
  await expect(details).toContainText(last.workloadName);
  const plan = await details.getByRole("link", { name: "Its plan and timelines" }).getAttribute("href");
  const params = new URLSearchParams(plan!.split("?")[1]);
  expect(params.get("run")).toBe(String(last.run));
  expect((JSON.parse(params.get("workload")!) as { name: string }).name).toBe(last.workloadName);
  await expectAccessible(page);

  // The address holds it all.
  await page.reload();
  await expect(details).toContainText(last.workloadName);
  await details.getByRole("button", { name: "Close" }).click();
  await expect(details).toBeHidden();
});

test("runs are chosen by profile and schedule, and sorted, in the address", async ({ page, planner }) => {
  test.setTimeout(180_000);
  reportRuns(planner, workloads.slice(0, 2));
  await page.goto(`${planner.url}#/accuracy`);
  await expect(page.getByText(/^2 runs:/)).toBeVisible();
  await page.getByRole("combobox", { name: "Profile", exact: true }).selectOption("west");
  await expect(page).toHaveURL(/profile=west/);
  await expect(page.getByText(/^2 runs:/)).toBeVisible();

  await openTable(page);
  const errors = async (): Promise<number[]> => {
    const texts = await runTable(page).locator("tbody tr td:nth-child(8)").allTextContents();
    return texts.map((text) => Number.parseFloat(text.replace("−", "-")));
  };
  await runTable(page).getByRole("button", { name: "error" }).click();
  await expect(runTable(page).getByRole("columnheader", { name: "error" })).toHaveAttribute("aria-sort", "ascending");
  const upwards = await errors();
  expect(upwards).toEqual([...upwards].sort((a, b) => a - b));
  await runTable(page).getByRole("button", { name: "error" }).click();
  await expect.poll(errors).toEqual([...upwards].reverse());
  await expect(page).toHaveURL(/sort=-error/);

  await page.goto(`${planner.url}#/accuracy?profile=nobody`);
  await expect(page.getByRole("heading", { name: "No run of a plan of nobody is stored" })).toBeVisible();
  await page.goto(`${planner.url}#/accuracy?schedule=NOTHING`);
  await expect(page.getByText("is of schedule NOTHING")).toBeVisible();
  await page.getByRole("link", { name: "Show all schedules" }).click();
  await expect(page.getByText(/^2 runs:/)).toBeVisible();
});

test("figures of many runs lead to the run that they are of, and what is awaited shows no other", async ({ page, planner }) => {
  test.setTimeout(180_000);
  reportRuns(planner, workloads.slice(0, 3));
  const { runs } = await planner.call<{ runs: Run[] }>("PlannerService/ListRuns", {});
  const errorOf = ({ predictedTimeS, measuredTimeS }: Run): number => (predictedTimeS - measuredTimeS) / measuredTimeS;
  const byError = [...runs].sort((a, b) => Math.abs(errorOf(a)) - Math.abs(errorOf(b)));
  await page.goto(`${planner.url}#/accuracy`);
  const summary = page.getByText(/^3 runs: median error/);
  // Of three the middle one, and by nearest rank the last.
  await summary.getByRole("link").nth(1).click();
  await expect(page.getByRole("region", { name: `Run ${byError[2]!.run}`, exact: true })).toContainText(byError[2]!.workloadName);
  const goRun = await hold(page, "GetRun");
  await summary.getByRole("link").first().press("Enter");
  const middle = page.getByRole("region", { name: `Run ${byError[1]!.run}`, exact: true });
  await expect(page.locator("#run-title")).toBeFocused();
  await expect(middle).toHaveText(/Loading …$/);
  await goRun();
  await expect(middle).toContainText(byError[1]!.workloadName);
  // From there the profile's version is one click away: its samples, fits and agents.
  await expect(middle.getByRole("link", { name: /^west version \d+$/ })).toHaveAttribute("href", /^#\/curves\?profile=west&version=\d+$/);

  // Each row of the two tables has the same of its own runs.
  const ofSchedule = page.getByRole("region", { name: /^Error by schedule/ }).locator("tbody tr").first();
  await expect(ofSchedule.getByRole("link")).toHaveCount(5);
  await ofSchedule.getByRole("link", { name: /^\d+ % of \d+$/ }).click();
  await expect(page).toHaveURL(/schedule=[A-Z0-9_]+.*sort=inside/);
  await expect(runTable(page)).toBeVisible();
  await expect(page.locator("summary", { hasText: "As a table" })).toBeFocused();
  await expect(runTable(page).getByRole("columnheader", { name: "in the interval" })).toHaveAttribute("aria-sort", "ascending");

  const goRuns = await hold(page, "ListRuns");
  await page.getByRole("combobox", { name: "Profile", exact: true }).selectOption("west");
  await expect(page.getByText("Loading runs …")).toBeVisible();
  await expect(runTable(page)).toHaveCount(0);
  await goRuns();
  await expect(runTable(page)).toBeVisible();
});

test("a hostile name is text", async ({ page, planner }) => {
  reportRuns(planner, [{ ...workloads[0], name: hostileName }]);
  await page.goto(`${planner.url}#/accuracy?run=1`);
  await expect(page.getByRole("region", { name: "Run 1" })).toContainText(hostileName);
  await openTable(page);
  await expect(runTable(page)).toContainText(hostileName);
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
});

test("a run that is not there is said", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/accuracy?run=77`);
  await expect(page.getByRole("alert")).toContainText("77");
});

test("an address whose run is no run's number is told so", async ({ page, emptyPlanner }) => {
  for (const run of ["x", "0", "-1", "1.5"]) {
    await page.goto(`${emptyPlanner.url}#/accuracy?run=${run}`);
    await expect(page.getByRole("alert")).toHaveText(`The address names run ${run}, which is no run's number.`);
  }
});

test("what was seen stays while the planner is away", async ({ page, planner }) => {
  reportRuns(planner, workloads.slice(0, 1));
  await page.goto(`${planner.url}#/accuracy`);
  await expect(page.getByText(/^1 run:/)).toBeVisible();
  await planner.stop("SIGKILL");
  await page.getByRole("button", { name: "Load again" }).click();
  await expect(page.getByText(/does not answer since/)).toBeVisible();
  await expect(page.getByText(/^1 run:/)).toBeVisible();
  await expectAccessible(page);
  await planner.restart();
  await expect(page.getByText(/does not answer since/)).toBeHidden();
});

/** As many runs as the view takes, which no test has the time to make; the planner's answers are checked above. */
async function routeRuns(page: Page, count: number): Promise<void> {
  const plan = {
    chunks: 1, partitionDegree: 1, allToAll: "DIRECT", dispatchCodec: "NONE", combineCodec: "NONE", overlappedGather: false, chunkShares: [],
    order: [], lowS: 1e-4, highS: 1e-1, timeline: [], communicationCtas: 0,
  };
  const families = ["BASELINE", "PARM_S1", "PARM_S2", "MONTA_O3", "PIPELINE"];
  const runs = Array.from({ length: count }, (_, index) => ({
    run: count - index,
    createdAt: new Date(Date.UTC(2026, 0, 1) - index * 60_000).toISOString(),
    profileName: index % 3 === 0 ? "east" : "west",
    profileVersion: 1,
    workloadName: `workload ${index}`,
    plan: { ...plan, schedule: families[index % families.length] },
    predictedTimeS: 1e-3 * (1 + (index % 97)),
    measuredTimeS: 1e-3 * (1 + (index % 97)) * (0.9 + (index % 21) / 100),
    requestId: "",
  }));
  await page.route(/PlannerService\/ListRuns$/, async (route) => {
    const { pageSize, pageToken } = route.request().postDataJSON() as { pageSize: number; pageToken: string };
    const from = Number(pageToken);
    const next = from + pageSize;
    await route.fulfill({ json: { runs: runs.slice(from, next), nextPageToken: next < count ? String(next) : "" } });
  });
}

test("ten thousand runs answer the pointer, and a click opens one", async ({ page, emptyPlanner }) => {
  await routeRuns(page, 12_000);
  await page.goto(`${emptyPlanner.url}#/accuracy`);
  await expect(page.getByText(/^10,000 runs \(the newest of them/)).toBeVisible();
  expect(await page.locator("main *").count()).toBeLessThan(2000);
  const chart = page.getByRole("img", { name: /^Measured over predicted/ });
  const box = (await chart.boundingBox())!;
  // From the move to the sentence in the document, in the page's own time.
  await chart.evaluate((element) => {
    const state = window as unknown as { movedAt: number; told: number[] };
    state.told = [];
    element.addEventListener("pointermove", () => (state.movedAt = performance.now()), true);
    const card = element.closest("section")!;
    new MutationObserver(() => state.told.push(performance.now() - state.movedAt)).observe(card.querySelector(".told")!, { childList: true, subtree: true, characterData: true });
  });
  for (let step = 0; step <= 60; ++step) await page.mouse.move(box.x + 68 + ((box.width - 84) * step) / 60, box.y + 10 + (310 * (60 - step)) / 60);
  const told = await page.evaluate(() => (window as unknown as { told: number[] }).told);
  expect(told.length).toBeGreaterThan(3);
  expect([...told].sort((a, b) => a - b)[told.length >> 1]).toBeLessThan(100);

  const sentence = page.locator("section", { has: chart }).locator(".told");
  for (let step = 20; step <= 60 && !/^Run/.test((await sentence.textContent())!); ++step) {
    await page.mouse.move(box.x + 68 + ((box.width - 84) * step) / 60, box.y + 10 + (310 * (60 - step)) / 60);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  const number = /^Run (\d+):/.exec((await sentence.textContent())!)![1]!;
  await page.mouse.down();
  await page.mouse.up();
  await expect(page).toHaveURL(new RegExp(`run=${number}$`));
  await expect(page.getByRole("region", { name: `Run ${number}` })).toBeVisible();

  await openTable(page);
  await expect(runTable(page).getByRole("row")).toHaveCount(101);
  await page.getByRole("button", { name: "Next" }).click();
  await expect(page.getByText("Rows 101 to 200 of 10000")).toBeVisible();
});

test("a narrow page and a dark one hold it all", async ({ page, emptyPlanner }) => {
  await routeRuns(page, 300);
  await page.setViewportSize({ width: 400, height: 800 });
  await page.goto(`${emptyPlanner.url}#/accuracy?sort=error`);
  await expect(page.getByText(/^300 runs:/)).toBeVisible();
  await expectFits(page);
  await expectAccessible(page);
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page);
});

test("steps that others measured are shown with their miss and what they consist of", async ({ page }) => {
  const folder = temporaryFolder();
  const file = join(folder.path, "steps.json");
  const part = (name: string, exposedS: number) => ({ part: name, forwardS: exposedS / 2, backwardS: exposedS / 2, exposedS });
  writeFileSync(file, JSON.stringify({
    rows: [
      { set: "simumax-b200-dense", case: hostileName, measuredS: 2, predictedS: 1.9, lowS: 1.8, highS: 2.1, error: -0.05, parts: [part("attention", 0.4), part("bubble", 1.5)] },
      { set: "published-moe", case: "far off", measuredS: 1, predictedS: 1.5, unscaledS: 1.2, lowS: 1.4, highS: 1.6, error: 0.5, reason: "factor 1.25", parts: [part("moeLayers", 1.2)] },
      { set: "published-moe", case: "not priced", measuredS: 1, reason: "no such model ships" },
    ],
    sets: [
      { set: "published-moe", rows: 2, priced: 1, meanAbsoluteError: 0.5, trivialMeanAbsoluteError: 0.1 },
      { set: "simumax-b200-dense", rows: 1, priced: 1, meanAbsoluteError: 0.05, coverage: 1 },
    ],
  }));
  const planner = await Planner.start(join(folder.path, "moeplan.db"), "--measured-steps", file);
  await page.goto(`${planner.url}#/accuracy`);
  const steps = page.getByRole("region", { name: "Measured steps", exact: true });
  await expect(steps.getByRole("row")).toHaveCount(4);
  // The largest miss comes first, and what has none last.
  await expect(steps.getByRole("row").nth(1)).toContainText("far off");
  await expect(steps.getByRole("row").nth(1)).toContainText("+50 %");
  await expect(steps.getByRole("row").nth(3)).toContainText("no such model ships");
  await expectAccessible(page);
  await expectFits(page);

  await steps.getByRole("link", { name: hostileName }).click();
  const parts = page.getByRole("region", { name: "What the time predicted from costs consists of" });
  await expect(parts.getByRole("row")).toHaveCount(3);
  await expect(parts.getByRole("row").nth(2)).toContainText("78.9 %");
  await page.getByRole("button", { name: "Close" }).click();
  await expect(parts).toHaveCount(0);

  await page.getByRole("region", { name: /^Sets of measured steps/ }).getByRole("link", { name: "published-moe" }).click();
  await expect(steps.getByRole("row")).toHaveCount(3);
  await steps.getByRole("link", { name: "far off" }).click();
  await expect(page.getByText("Measured 1 s; predicted 1.2 s from costs alone, 1.5 s by what its release does to other rows. factor 1.25.")).toBeVisible();
  await planner.stop();
  folder.remove();
});
