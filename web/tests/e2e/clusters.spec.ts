// What is known of each cluster, from an empty database to a hundred profiles, with agents that come and go.
import type { Page } from "@playwright/test";

import * as text from "../../src/format";
import { Agent } from "./agent";
import { expect, expectAccessible, expectFits, hostileName, test, workloads } from "./fixtures";
import { moeplan, Planner } from "./planner";

import type { PlanResponse } from "../../generated/moeplan/v1/plan";
import type { ListDriftsResponse } from "../../generated/moeplan/v1/planner_service";
import type { GetLinksResponse } from "../../generated/moeplan/v1/profile_service";

type Json = Record<string, unknown>;

/** Stores the profile "west" under other names, too. */
async function copyProfile(planner: Planner, names: readonly string[]): Promise<void> {
  const { profile } = await planner.call<{ profile: Json }>("ProfileService/GetProfile", { profileName: "west" });
  for (const name of names) await planner.call("ProfileService/PutProfile", { requestId: `copy ${name}`.slice(0, 128), profile: { ...profile, name } });
}

const detail = (page: Page) => page.getByRole("article");
const table = (page: Page, name: RegExp) => page.getByRole("table", { name });

test("an empty database is answered with the first steps", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}#/clusters`);
  await expect(page.getByRole("heading", { name: "Nothing has been measured yet" })).toBeVisible();
  for (const command of [
    "moeplan calibrate --local 4 --db",
    "moeplan agent --planner HOST:PORT",
    "moeplan calibrate --planner HOST:PORT",
    "moeplan calibrate --simulated deploy/examples/cluster.json --db",
  ]) {
    await expect(page.locator("main pre").filter({ hasText: command })).toHaveCount(1);
  }
  await expectAccessible(page);
  await page.setViewportSize({ width: 400, height: 800 });
  await expectFits(page);
});

test("a calibrated cluster shows its shape, its links and how well it is known", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await expect(detail(page).getByRole("heading", { name: "west" })).toBeVisible();
  await expect(detail(page).getByRole("img", { name: /2 nodes × 4 GPUs/ })).toBeVisible();
  const links = table(page, /Links, fitted/);
  await expect(links.getByRole("row", { name: /inside a node/ })).toContainText(/(ns|µs|ms)/);
  await expect(links.getByRole("row", { name: /between nodes/ })).toContainText(/B\/s/);
  // The drawing says the same of them.
  const { links: fitted } = await planner.call<GetLinksResponse>("ProfileService/GetLinks", { profileName: "west" });
  const [inside, between] = ["INTRA_NODE", "INTER_NODE"].map((stream) => fitted.find((link) => link.stream === stream)!);
  const key = detail(page).locator("figcaption");
  await expect(key).toContainText(`inside a node: ${text.bytesPerS(inside!.bytesPerS!)}, α ${text.seconds(inside!.alphaS)}`);
  await expect(key).toContainText(`between nodes: ${text.bytesPerS(between!.bytesPerS!)}`);
  await expect(detail(page).locator("dl").first()).toContainText(/% median, cross-validated/);
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await expectAccessible(page);
  }
  await page.setViewportSize({ width: 400, height: 800 });
  await expectFits(page);
  await expectAccessible(page);
});

test("every cost leads to its curve, and a version to the profile of that time", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  const worst = detail(page).locator("dd", { hasText: "worst:" }).getByRole("link");
  const cost = (await worst.textContent()) ?? "";
  await worst.click();
  await expect(page.getByRole("heading", { level: 2, name: cost, exact: true })).toBeVisible();
  await page.goBack();
  await detail(page).getByText("2 versions").click();
  await table(page, /All versions/).getByRole("link", { name: "version 1", exact: true }).click();
  await expect(page.getByText(/version 1, stored/)).toBeVisible();
  expect(new URL(page.url()).hash).toContain("version=1");
});

test("a hostile name is text, and its links work", async ({ page, planner }) => {
  await copyProfile(planner, [hostileName]);
  await page.goto(`${planner.url}#/clusters`);
  await page.getByRole("link", { name: hostileName }).click();
  await expect(detail(page).getByRole("heading", { name: hostileName })).toBeVisible();
  await expect(detail(page).locator("pre").filter({ hasText: "moeplan agent" })).toContainText(`--cluster='<img src=x onerror="window.hacked=1">&'\\''"'`);
  await expectAccessible(page);
  await detail(page).getByRole("link", { name: /^version 1$/ }).click();
  await expect(page.getByRole("link", { name: hostileName, exact: true })).toBeVisible();
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
});

test("many clusters are filtered and paged, by keyboard too, and the address restores it", async ({ page, planner }) => {
  await copyProfile(planner, Array.from({ length: 30 }, (_, index) => `profile-${String(index).padStart(2, "0")}`));
  await page.goto(`${planner.url}#/clusters`);
  const list = page.getByRole("navigation", { name: "Clusters" });
  await expect(list).toContainText("31 clusters");
  await expect(list.getByRole("listitem")).toHaveCount(12);
  await list.getByRole("button", { name: "Next" }).click();
  await expect(list).toContainText("Page 2 of 3");
  await list.getByRole("searchbox").fill("-07");
  await expect(list).toContainText("1 of 31 clusters");
  await list.getByRole("link").focus();
  await page.keyboard.press("Enter");
  await expect(detail(page).getByRole("heading", { name: "profile-07" })).toBeVisible();
  await page.reload();
  await expect(detail(page).getByRole("heading", { name: "profile-07" })).toBeVisible();
  await expect(list.getByRole("searchbox")).toHaveValue("-07");
  await expect(list.getByRole("link", { name: "profile-07" })).toHaveAttribute("aria-current", "true");
  await expectAccessible(page);
});

test("a name that is not there is said", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters?profile=nowhere`);
  await expect(page.getByRole("alert")).toContainText("There is no cluster named \"nowhere\"");
});

test("a calibration by agents is started here, watched live, and kept; a lost agent is said with why", async ({ page, planner }) => {
  test.setTimeout(120_000);
  await planner.stop();
  const quick = await Planner.start(planner.db, "--agent-heartbeat", "300ms");
  // A cluster of its own: "west" was measured by others, who say more of its machines.
  const agent = await Agent.start(quick, "east", "simulated-agent");
  try {
    await page.goto(`${quick.url}#/clusters?profile=east`);
    await expect(table(page, /1 of 1 agent live/)).toContainText("simulated-agent", { timeout: 20_000 });
    await detail(page).getByLabel("Budget in seconds").fill("8");
    await detail(page).getByRole("button", { name: "Start a calibration" }).click();
    const running = detail(page).getByRole("region", { name: "Calibration 1" });
    await expect(running.getByRole("progressbar")).toBeVisible();
    await expect(running).toContainText(/running/);
    const spent = async (): Promise<number> => Number(await running.getByRole("progressbar").getAttribute("value"));
    await expect.poll(spent, { timeout: 20_000 }).toBeGreaterThan(0);
    await expectAccessible(page);
    const row = table(page, /Earlier calibrations/).getByRole("row", { name: /^1 / });
    await expect(row).toContainText("done", { timeout: 60_000 });
    await expect(row.getByRole("link", { name: /east, version \d/ })).toBeVisible();
    await agent.kill();
    await expect(detail(page).getByText("lost", { exact: true })).toBeVisible({ timeout: 20_000 });
    await expect(page.getByText("1 agent lost").first()).toBeVisible();
    await expectAccessible(page);
  } finally {
    await agent.kill();
    await quick.stop();
  }
});

test("a calibration that waits for agents can be cancelled", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await detail(page).getByRole("button", { name: "Start a calibration" }).click();
  const waiting = detail(page).getByRole("region", { name: "Calibration 1" });
  await expect(waiting).toContainText("waiting");
  await waiting.getByRole("button", { name: "Cancel calibration 1" }).click();
  await expect(table(page, /Earlier calibrations/).getByRole("row", { name: /^1 / })).toContainText("cancelled");
});

test("a budget that makes no sense is refused with its field", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await detail(page).getByLabel("Budget in seconds").fill("0");
  await detail(page).getByRole("button", { name: "Start a calibration" }).click();
  await expect(detail(page).getByRole("alert")).toContainText("budgetS");
  await expect(detail(page).getByLabel("Budget in seconds")).toHaveAttribute("aria-invalid", "true");
  await expectAccessible(page);
});

test("who may only read is told which role starts a calibration", async ({ page, planner }) => {
  const token = moeplan("token", "create", "--db", planner.db, "--name", "eyes", "--role", "read").trim();
  await page.goto(`${planner.url}#/clusters`);
  await page.getByRole("dialog").getByLabel("Token").fill(token);
  await page.getByRole("dialog").getByRole("button", { name: "Go on" }).click();
  await detail(page).getByRole("button", { name: "Start a calibration" }).click();
  await expect(detail(page).getByRole("alert")).toContainText("admin");
  await expect(detail(page).getByRole("button", { name: "Use another token" })).toBeVisible();
  await expectAccessible(page);
});

test("samples that were set aside are told with why", async ({ page, planner }) => {
  const { profile } = await planner.call<{ profile: { cluster: Json } }>("ProfileService/GetProfile", { profileName: "west" });
  // 1 GiB in a microsecond, over links of 1 GB/s.
  const sample = { collective: "ALL_TO_ALL", groupSize: 8, ranksPerNode: 4, bytes: 2 ** 30, timeS: [1e-6], provenance: { linkBytesPerS: "1e9", hostname: hostileName } };
  await planner.call("ProfileService/AppendSamples", { requestId: "too fast", samples: { name: "west", cluster: profile.cluster, samples: [sample] } });
  await page.goto(`${planner.url}#/clusters`);
  await detail(page).getByText("1 set aside").click();
  const row = table(page, /Samples set aside/).getByRole("row", { name: /ALL_TO_ALL groupSize 8 ranksPerNode 4/ });
  await expect(row).toContainText("1 GiB");
  await expect(row).toContainText("too fast");
});

test("of many samples that were set aside the last are told, and how many there are", async ({ page, planner }) => {
  const { profile } = await planner.call<{ profile: { cluster: Json } }>("ProfileService/GetProfile", { profileName: "west" });
  // Nobody says where they come from.
  const sample = { collective: "ALL_TO_ALL", groupSize: 8, ranksPerNode: 4, bytes: 2 ** 30, timeS: [-1] };
  await planner.call("ProfileService/AppendSamples", { requestId: "before time", samples: { name: "west", cluster: profile.cluster, samples: Array.from({ length: 26 }, () => sample) } });
  await page.goto(`${planner.url}#/clusters`);
  await detail(page).getByText("26 set aside").click();
  await expect(table(page, /^25 of 26 samples that were set aside, the last received$/).locator("tbody tr")).toHaveCount(25);
});

test("a drift that runs show leads to its cost, and says why it could not be measured again", async ({ page, planner }) => {
  await planner.stop();
  const quick = await Planner.start(planner.db, "--report-interval", "1ms");
  try {
    const plan = await quick.call<PlanResponse>("PlannerService/Plan", { workload: workloads[1], profileName: "west" });
    const { timeline } = plan.best!;
    const slow = timeline.map((task) => (task.kind.startsWith("ALL_TO_ALL") ? { ...task, endS: task.startS + 1.5 * (task.endS - task.startS) } : task));
    // A shift that every report shows is found with the 25th (docs/operations.md).
    for (let report = 1; report <= 25; ++report) {
      await quick.call("PlannerService/ReportRun", { requestId: `report ${report}`, plan: { ...plan, candidates: [] }, ranks: [{ rank: 0, timeline: slow }] });
    }
    const { drifts } = await quick.call<ListDriftsResponse>("PlannerService/ListDrifts", {});
    expect(drifts.length).toBeGreaterThan(0);
    await page.goto(`${quick.url}#/clusters`);
    const row = table(page, /did not find as predicted/).getByRole("row", { name: drifts[0]!.cost });
    await expect(row).toContainText("1.5× in 25 runs");
    await expect(row).toContainText("could not be measured again");
    await expect(row).toContainText(drifts[0]!.detail);
    await expect(detail(page).getByRole("heading", { level: 2 })).toContainText(drifts.length === 1 ? "1 drift" : `${drifts.length} drifts`);
    await expectAccessible(page);
    await row.getByRole("link", { name: drifts[0]!.cost }).click();
    await expect(page.getByRole("heading", { level: 2, name: drifts[0]!.cost, exact: true })).toBeVisible();
  } finally {
    await quick.stop();
  }
});

test("a renewed drift leads to both versions", async ({ page, planner }) => {
  const { costs } = await planner.call<{ costs: string[] }>("ProfileService/GetCurve", { profileName: "west" });
  // To come by one takes agents that calibrated the cluster, and again once its network is slower: tests/e2e/drift_test.cc.
  const drift = { profileName: "west", profileVersion: 1, cost: costs[0], runs: 9, calibration: 3, foundAt: "2026-01-01T00:00:00Z", ratio: 1.4, state: "RENEWED", renewedVersion: 2, detail: hostileName };
  await page.route("**/moeplan.v1.PlannerService/ListDrifts", (route) => route.fulfill({ json: { drifts: [drift], nextPageToken: "" } }));
  await page.goto(`${planner.url}#/clusters`);
  const drifts = table(page, /did not find as predicted/);
  await expect(drifts.getByRole("row", { name: /1.4× in 9 runs/ })).toContainText("renewed");
  await expect(drifts).toContainText(hostileName);
  await drifts.getByRole("link", { name: "version 2, beside 1" }).click();
  await expect(page.getByRole("heading", { name: "west, version 2, beside west, version 1" })).toBeVisible();
});

test("what was seen stays while the planner is away", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/clusters`);
  await expect(table(page, /Links, fitted/)).toBeVisible();
  await planner.stop("SIGKILL");
  await expect(page.getByText(/does not answer since/)).toBeVisible();
  await expect(table(page, /Links, fitted/)).toBeVisible();
  await detail(page).getByRole("button", { name: "Start a calibration" }).click();
  await expect(detail(page).getByRole("alert")).toContainText("does not answer");
  await planner.restart();
  await expect(page.getByText(/does not answer since/)).toBeHidden();
  await detail(page).getByRole("button", { name: "Start a calibration" }).click();
  await expect(detail(page).getByRole("region", { name: "Calibration 1" })).toBeVisible();
});
