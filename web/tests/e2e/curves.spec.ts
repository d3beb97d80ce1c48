// One cost of a profile: its samples, its fit, and another profile beside it.
import type { Page } from "@playwright/test";

import { Agent } from "./agent";
import { expect, expectAccessible, expectFits, hostileName, test } from "./fixtures";
import { type Planner } from "./planner";

type Json = Record<string, unknown>;

const title = (page: Page) => page.locator("#curve-title");
const samples = (page: Page) => page.getByRole("region", { name: /^Samples of this cost/ });
const charts = (page: Page) => page.locator(".sample-chart svg");
const link = (planner: Planner, params: Readonly<Record<string, string>> = {}): string =>
  `${planner.url}#/curves?${new URLSearchParams({ profile: "west", ...params }).toString()}`;

const agentName = "agent-7";

/** Of an agent, at 1 ms and 1 GB/s; one is far off, and one cannot be right. Under a name of their own. */
async function putSamples(planner: Planner, name: string, requestId = "put by hand"): Promise<void> {
  const agent = await Agent.start(planner, "elsewhere", agentName);
  const { profile } = await planner.call<{ profile: { cluster: Json } }>("ProfileService/GetProfile", { profileName: "west" });
  const sizes = Array.from({ length: 12 }, (_, index) => 2 ** (12 + index));
  const sampleOf = (bytes: number, index: number): Json => ({
    collective: "ALL_TO_ALL", groupSize: 8, ranksPerNode: 4, bytes,
    timeS: [1, 1.01, 0.99].map((noise) => (1e-3 + bytes / 1e9) * noise * (index === 5 ? 10 : 1)),
    provenance: { agent: agentName, hostname: "host.example", backend: "host", device: "a device", takenAt: "2026-01-02T03:04:05Z" },
  });
  const measured = [...sizes, ...sizes].map((bytes, index) => sampleOf(bytes, index));
  const apart = { ...sampleOf(2 ** 30, 0), timeS: [1e-6], provenance: { linkBytesPerS: "1e9" } };
  await planner.call("ProfileService/PutSamples", { requestId, samples: { name, cluster: profile.cluster, samples: [...measured, apart] } });
  await agent.kill();
}

/** Of nobody in particular, under one name. */
async function appendSamples(planner: Planner, name: string, requestId: string, measured: readonly { bytes: number; timeS: number; provenance?: Json }[]): Promise<void> {
  const { profile } = await planner.call<{ profile: { cluster: Json } }>("ProfileService/GetProfile", { profileName: "west" });
  const all = measured.map(({ bytes, timeS, provenance = {} }) => ({ collective: "ALL_TO_ALL", groupSize: 8, ranksPerNode: 4, bytes, timeS: [timeS], provenance }));
  await planner.call("ProfileService/AppendSamples", { requestId, samples: { name, cluster: profile.cluster, samples: all } });
  await planner.call("ProfileService/FitProfile", { requestId, profileName: name });
}

test("an empty database is answered with the command that fills it, and the page fills by itself", async ({ page, emptyPlanner, planner }) => {
  await page.goto(`${emptyPlanner.url}#/curves`);
  await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toBeVisible();
  await expect(page.locator("main pre").first()).toContainText("moeplan calibrate --local 4 --db");
  await expectAccessible(page);
  const { profile } = await planner.call<{ profile: Json }>("ProfileService/GetProfile", { profileName: "west" });
  await emptyPlanner.call("ProfileService/PutProfile", { requestId: "filled", profile });
  await expect(charts(page)).toHaveCount(3, { timeout: 15_000 });
  await expect(page.getByRole("combobox", { name: "Profile", exact: true })).toHaveValue("west");
});

test("a cost shows its charts, its fit and its samples, for every eye and width", async ({ page, planner }) => {
  await page.goto(link(planner));
  await expect(charts(page)).toHaveCount(3);
  await expect(page.getByRole("img", { name: /Time over size: .* samples/ })).toBeVisible();
  await expect(page.getByRole("img", { name: /Bus bandwidth over size: at most .* of the peak/ })).toBeVisible();
  const fit = page.getByRole("region", { name: "Fit", exact: true });
  await expect(fit).toContainText("cross-validated");
  await expect(fit).toContainText("90 %");
  await expect(fit.locator("dd").nth(1)).not.toBeEmpty();
  await expect(samples(page).getByRole("row")).not.toHaveCount(1);
  await expect(page.locator("#curve-title + p a")).toHaveAttribute("href", "#/clusters?profile=west");
  for (const tables of await page.getByText("As a table").all()) await tables.click();
  await expect(page.getByRole("table", { name: "The fit over size" })).toContainText("µs");
  await expect(page.getByRole("table", { name: /Residuals of the samples/ })).toContainText("%");
  await expect(page.getByRole("table", { name: "Bus bandwidth over size" })).toContainText("B/s");
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await expectAccessible(page);
  }
  await page.setViewportSize({ width: 400, height: 800 });
  await expectFits(page);
});

test("the cost is found by typing and chosen by keyboard, and the address restores it", async ({ page, planner }) => {
  await page.goto(link(planner));
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  const first = costs.find((cost) => cost.startsWith("ALL_REDUCE"))!;
  await page.getByLabel("Cost names contain").fill("all_reduce groupSize");
  const list = page.locator("select.cost-list");
  await expect(list.locator("optgroup[label=ALL_TO_ALL]")).toHaveCount(0);
  await list.focus();
  await page.keyboard.press("Home");
  await expect(title(page)).toHaveText(/ALL_REDUCE/);
  await list.selectOption(first);
  await expect(title(page)).toHaveText(first);
  await page.reload();
  await expect(title(page)).toHaveText(first);
  await expect(page.getByLabel("Cost names contain")).toHaveValue("all_reduce groupSize");
  await page.getByRole("combobox", { name: "Version", exact: true }).selectOption("1");
  await expect(page.getByText(/version 1, stored/)).toBeVisible();
  await page.goBack();
  await expect(page.getByText(/version 2, stored/)).toBeVisible();
});

test("a kernel that counts flops has its units", async ({ page, planner }) => {
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  await page.goto(link(planner, { cost: costs.find((cost) => cost.startsWith("EXPERT_GEMM"))! }));
  await expect(page.getByRole("heading", { name: "Rate over size" })).toBeVisible();
  await expect(samples(page)).toContainText("flop");
});

test("samples tell where they come from: by pointer, and by keyboard alone", async ({ page, planner }) => {
  await putSamples(planner, "traced");
  await page.goto(link(planner, { profile: "traced" }));
  const walk = page.getByLabel(/Walk the samples/);
  await walk.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  const readout = page.locator(".readout");
  await expect(readout).toContainText("Sample 2 of 25: 4 KiB, median 1 ms");
  await expect(readout).toContainText("agent agent-7, host host.example, a device");
  await expect(readout).toHaveAttribute("aria-live", "polite");
  await page.keyboard.press("Enter");
  const row = samples(page).locator('tr[aria-current="true"]');
  await expect(row).toContainText("agent-7");
  await expect(row).toContainText("put by hand");
  await expect(row).toContainText("2026-01-02T03:04:05Z");
  // Enter went to the provenance; it opens by keyboard.
  await page.keyboard.press("Enter");
  await expect(row.locator("dl")).toContainText("host.example");

  await page.reload();
  await expect(samples(page).locator('tr[aria-current="true"]')).toContainText("agent-7");
  await walk.focus();
  const mark = page.locator(".sample-chart .current circle").first();
  await mark.scrollIntoViewIfNeeded();
  const box = (await mark.boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await expect(page.locator(".tooltip")).toContainText("agent-7");
  await expect(readout).toHaveAttribute("aria-live", "off");
});

test("the address keeps the page and the order of the samples, and which one was chosen, whatever comes in later", async ({ page, planner }) => {
  // 60 of 4 KiB, each 1 µs longer than the one before, on three pages.
  await appendSamples(planner, "kept", "first", Array.from({ length: 60 }, (_, index) => ({ bytes: 4096, timeS: (100 + index) * 1e-6 })));
  await page.goto(link(planner, { profile: "kept" }));
  const params = () => new URLSearchParams(new URL(page.url()).hash.split("?")[1]);
  const firstRow = samples(page).locator("tbody tr").first();
  await samples(page).getByRole("button", { name: "Median" }).click();
  await samples(page).getByRole("button", { name: "Median" }).click();
  await expect(samples(page).getByRole("columnheader", { name: "Median" })).toHaveAttribute("aria-sort", "descending");
  await expect(firstRow).toContainText("159 µs");
  await page.getByRole("button", { name: "Next", exact: true }).click();
  await expect(page.getByText("Rows 26 to 50 of 60")).toBeVisible();
  expect([params().get("sort"), params().get("page")]).toEqual(["-median", "2"]);
  await page.reload();
  await expect(page.getByText("Rows 26 to 50 of 60")).toBeVisible();
  await expect(firstRow).toContainText("134 µs");

  // The second by size, and within one size by time; by falling time it stands on the last page.
  const chosen = samples(page).locator('tr[aria-current="true"]');
  await page.getByLabel(/Walk the samples/).focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await expect(chosen).toContainText("101 µs");
  await expect(page.getByText("Rows 51 to 60 of 60")).toBeVisible();
  await appendSamples(planner, "kept", "second", Array.from({ length: 30 }, (_, index) => ({ bytes: 1024, timeS: (40 + index) * 1e-6 })));
  await page.reload();
  await expect(page.getByText(/version 2, stored/)).toBeVisible();
  await expect(page.getByText("Rows 51 to 75 of 90")).toBeVisible();
  await expect(chosen).toContainText("101 µs");
  await expect(chosen).toContainText("first");

  await page.goto(link(planner, { profile: "kept", sample: "none" }));
  await expect(page.getByText("The sample of this address is not among those shown.")).toBeVisible();
  await expectAccessible(page);
});

test("of samples that were set aside, too, more than are asked for are said to be more", async ({ page, planner }) => {
  const apart = Array.from({ length: 5 }, () => ({ bytes: 2 ** 30, timeS: 1e-6, provenance: { linkBytesPerS: "1e9" } }));
  await appendSamples(planner, "apart", "first", [...Array.from({ length: 6 }, (_, index) => ({ bytes: 2 ** (12 + index), timeS: 1e-3 })), ...apart]);
  await page.goto(link(planner, { profile: "apart", samples: "3" }));
  const said = page.locator("#samples-title + p");
  await expect(said).toContainText("3 of 6 stored samples shown, spread over all sizes.");
  await expect(said).toContainText("3 of 5 that were set aside on arrival shown, the last received.");
  await said.getByRole("button", { name: /Show up to/ }).click();
  await expect(said).toContainText(/^6 stored\. .*5 set aside on arrival\.$/);
});

test("what does not count is told apart, with why", async ({ page, planner }) => {
  await putSamples(planner, "traced");
  await page.goto(link(planner, { profile: "traced" }));
  await expect(page.locator("#samples-title + p")).toContainText("1 set aside on arrival");
  await expect(page.locator("#samples-title + p")).toContainText(/The fit rejects \d+ of all their repeats as outliers, most repeats of \d+ of them\./);
  await page.getByRole("combobox", { name: "Show", exact: true }).selectOption("outlier");
  await expect(samples(page).locator("tbody tr").first()).toContainText(/outlier 3 of its 3 repeats lie outside of what the fit believes of this size; its median is [\d.]+× the fit/);
  await page.getByRole("combobox", { name: "Show", exact: true }).selectOption("set aside");
  await expect(samples(page).locator("tbody tr")).toHaveCount(1);
  await expect(samples(page).locator("tbody tr")).toContainText(/1 GiB.*set aside \S+/);
  await page.reload();
  await expect(samples(page).locator("tbody tr")).toHaveCount(1);
  await expectAccessible(page);
});

test("single repeats that the fit rejects are told apart from their sample, in the chart and in numbers", async ({ page, planner }) => {
  const { profile } = await planner.call<{ profile: { cluster: Json } }>("ProfileService/GetProfile", { profileName: "west" });
  const measured = Array.from({ length: 15 }, (_, index) => 2 ** (10 + index)).map((bytes): Json => ({
    collective: "ALL_TO_ALL", groupSize: 8, ranksPerNode: 4, bytes, provenance: {},
    // Two of nine ten times too slow.
    timeS: Array.from({ length: 9 }, (_, repeat) => (1e-5 + bytes / 1e9) * (1 + 0.002 * repeat) * (repeat === 3 || repeat === 8 ? 10 : 1)),
  }));
  await planner.call("ProfileService/PutSamples", { requestId: "repeats", samples: { name: "repeats", cluster: profile.cluster, samples: measured } });
  await page.goto(link(planner, { profile: "repeats" }));
  await expect(page.locator("[aria-labelledby=fit-title]")).toContainText("30 repeats rejected as outliers");
  await expect(page.locator("#samples-title + p")).toContainText("15 stored. The fit rejects 30 of all their repeats as outliers.");
  await expect(samples(page).locator("tbody tr").first()).toContainText("9 repeats, 2 of them rejected");
  const chart = charts(page).first();
  const marks = (kind: string): Promise<number> => chart.locator(kind).evaluate((path) => path.getAttribute("d")!.match(/M/g)!.length);
  expect([await marks(".dots"), await marks(".crosses.outlier")]).toEqual([15 * 7, 30]);
  // None of them stands anywhere but at its own time.
  await expect(chart.locator(".arrows")).toHaveCount(0);
  await expectAccessible(page);
});

test("a second version stands beside the first, in the charts and in numbers", async ({ page, planner }) => {
  await page.goto(link(planner));
  await page.getByLabel("Compare with").selectOption("west");
  await page.getByLabel("Its version").selectOption("1");
  await expect(page.getByRole("heading", { name: "west, version 2, beside west, version 1" })).toBeVisible();
  await expect(page.getByRole("table", { name: /Times at sizes of both/ }).locator("tbody tr").first()).toContainText(/\d×/);
  await expect(page.locator(".curve-legend")).toContainText("west, version 1");
  await expect(page.locator(".line.second")).not.toHaveCount(0);
  await expectAccessible(page);
  await page.reload();
  await expect(page.getByRole("heading", { name: "west, version 2, beside west, version 1" })).toBeVisible();
  await page.getByLabel("Compare with").selectOption("nothing");
  await expect(page.locator(".line.second")).toHaveCount(0);
});

test("a second profile without the cost is said, and the first stays", async ({ page, planner }) => {
  await putSamples(planner, "traced");
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  await page.goto(link(planner, { profile2: "traced", cost: costs.find((cost) => cost.startsWith("DEVICE_COPY"))! }));
  await expect(page.getByRole("alert")).toContainText("Nothing to compare with");
  await expect(charts(page)).toHaveCount(3);
});

test("more samples than are asked for are said to be more", async ({ page, planner }) => {
  // More than a chart tells apart are not asked for at first.
  const asked = page.waitForRequest("**/*.ProfileService/GetCurve");
  await page.goto(link(planner));
  expect((await asked).postDataJSON()).toMatchObject({ maxSamples: 500 });
  await page.goto(link(planner, { samples: "3" }));
  await expect(page.locator("#samples-title + p")).toContainText(/3 of \d+ stored samples shown/);
  await page.getByRole("button", { name: /Show up to/ }).click();
  await expect(page.locator("#samples-title + p")).toContainText(/\d+ stored\./);
});

test("where to measure next comes with the command", async ({ page, planner }) => {
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  let found = "";
  for (const cost of costs) {
    const { nextSizes } = await planner.call<{ nextSizes: Json[] }>("ProfileService/GetCurve", { profileName: "west", cost });
    if (nextSizes.length > 0) found = cost;
  }
  expect(found, "a cost of which some size is worth measuring").not.toBe("");
  await page.goto(link(planner, { cost: found }));
  const next = page.getByRole("region", { name: "Measure here next" });
  await expect(next.getByRole("listitem").first()).toContainText(/(B|flop): \S+/);
  await expect(next.locator("pre").first()).toHaveText("moeplan calibrate CLUSTER --db moeplan.db --profile-name=west");
});

test("what is not there is refused in the planner's words", async ({ page, planner }) => {
  await page.goto(link(planner, { cost: "NOTHING groupSize 1" }));
  await expect(page.getByRole("alert")).toContainText("NOTHING groupSize 1");
  await expect(page.getByText("Shown instead: the first cost of this profile.")).toBeVisible();
  await expect(charts(page)).toHaveCount(3);
  await page.goto(link(planner, { version: "99" }));
  await expect(page.getByRole("alert")).toContainText("99");
  await expect(page.getByRole("link", { name: "Show the newest version" })).toBeVisible();
  let asked = 0;
  page.on("request", (request) => { if (request.url().endsWith("GetCurve")) asked++; });
  await page.goto(link(planner, { version: "1x" }));
  await expect(page.getByRole("alert")).toContainText('version: found "1x", expected a whole number of at least 1');
  await expectAccessible(page);
  expect(asked).toBe(0);
  await page.getByRole("link", { name: "Show the newest version" }).click();
  await expect(page.getByText(/version 2, stored/)).toBeVisible();
  await page.goto(link(planner, { profile2: "west", version2: "1x" }));
  await expect(page.getByRole("alert")).toContainText("version2");
  await expect(page.getByText(/version 2, stored/)).toBeVisible();
});

test("hostile names are text wherever they stand", async ({ page, planner }) => {
  await putSamples(planner, hostileName, hostileName);
  await page.goto(link(planner, { profile: hostileName, profile2: hostileName }));
  await expect(page.getByRole("link", { name: hostileName, exact: true })).toBeVisible();
  await expect(samples(page)).toContainText(hostileName);
  await expectAccessible(page);
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
});

test("what was seen stays while the planner is away, and another cost is shown once it is back", async ({ page, planner }) => {
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  await page.goto(link(planner));
  await expect(title(page)).toHaveText(costs[0]!);
  await planner.stop("SIGKILL");
  await expect(charts(page)).toHaveCount(3);
  await page.locator("select.cost-list").selectOption(costs[1]!);
  await expect(page.getByText(/does not answer since/)).toBeVisible();
  await planner.restart();
  await expect(title(page)).toHaveText(costs[1]!, { timeout: 15_000 });
  await expect(page.getByText(/does not answer since/)).toBeHidden();
});
