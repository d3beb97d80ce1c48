// Runs in the Plan view: what ran, under the plan that it ran by.
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Locator, Page } from "@playwright/test";

import type { Plan } from "../../generated/moeplan/v1/plan";
import type { GetRunResponse, ListRunsResponse, Run } from "../../generated/moeplan/v1/planner_service";
import { describePlan } from "../../src/describe";
import * as text from "../../src/format";
import { hrefOf } from "../../src/route";
import { signedError } from "../../src/signed_error";
import { byTask, pathWords } from "../../src/views/plan/explained";
import { clusterFile, expect, expectAccessible, test } from "./fixtures";
import { answered, answerOf, explainedOf, field, section, workload, workloadIn } from "./plan_page";
import { moeplan, type Planner, temporaryFolder } from "./planner";

test.describe("a run", () => {
  /** Plans the workload with a source, runs it simulated, and keeps the run where `kept` says. */
  function ran(source: readonly string[], kept: readonly string[], ...more: string[]): void {
    const folder = temporaryFolder();
    const [workloadFile, planFile] = [join(folder.path, "workload.json"), join(folder.path, "plan.json")];
    writeFileSync(workloadFile, JSON.stringify(workload));
    writeFileSync(planFile, moeplan("plan", ...source, "--workload", workloadFile, "--json"));
    moeplan("run", "--plan", planFile, "--simulated", clusterFile, ...kept, "--json", ...more);
    folder.remove();
  }
  const lastRun = async (planner: Planner): Promise<Run> => (await planner.call<ListRunsResponse>("PlannerService/ListRuns", {})).runs[0]!;
  const atRun = (planner: Planner, params: Record<string, string | number>): string => `${planner.url}${hrefOf("plan", params)}`;
  const titles = (page: Page): Locator => page.locator(".timeline-title");

  test("stands under the plan that ran, not under what a search finds today", async ({ page, planner }) => {
    const { best } = await answerOf(planner);
    ran(["--planner", planner.grpcAddress, "--profile-name", "west"], ["--planner", planner.grpcAddress], "--schedule", "PIPELINE");
    const run = await lastRun(planner);
    expect(run.plan!.schedule).toBe("PIPELINE");
    expect(best!.schedule).not.toBe("PIPELINE");
    const stored = (await planner.call<GetRunResponse>("PlannerService/GetRun", { run: run.run })).plan!;
    const { plan, tasks } = await explainedOf(planner, stored.best!, stored.workload);
    const baseline = await explainedOf(planner, undefined, stored.workload);
    for (const schedule of ["BASELINE", "BASELINE_TP"] as const) {
      const plain = await explainedOf(planner, { schedule, chunks: 1, partitionDegree: 1 } as Plan, stored.workload);
      expect(baseline.plan!.predictedTimeS).toBeLessThanOrEqual(plain.plan!.predictedTimeS);
    }
    const planned: string[] = [];
    page.on("request", (request) => { if (request.url().endsWith("PlannerService/Plan")) planned.push(request.url()); });
    await page.goto(atRun(planner, { run: run.run }));
    const summary = section(page, `Run ${run.run}: ${describePlan(run.plan!)}`);
    await expect(summary.locator("dd").nth(1)).toHaveText(text.seconds(run.measuredTimeS));
    await expect(summary.locator("dd").nth(2)).toHaveText(`${text.seconds(run.predictedTimeS)} (${text.signedPercent(signedError(run))})`);
    await expect(summary.getByRole("link", { name: "west version 2" })).toBeVisible();
    await expect(titles(page)).toHaveText([
      `Faster baseline, ${text.seconds(baseline.plan!.predictedTimeS)}: ${describePlan(baseline.plan!)}`,
      `Planned, ${text.seconds(plan!.predictedTimeS)}: ${describePlan(plan!)}`, new RegExp(`^Measured, .*: rank \\d+ of run ${run.run}$`),
    ]);
    await expect(page.locator("[data-fact=critical]")).toHaveText(pathWords(plan!.timeline, byTask(tasks)));
    await expect(page.locator("[data-fact=measured]")).toContainText("no path of their own");
    await expect(page.getByLabel("Measured rank")).toContainText("slowest");
    await section(page, "Timeline").getByText("As a table").click();
    await expect(page.getByRole("region", { name: "Tasks by timeline" }).locator("a[href*='cost=']")).toHaveCount(
      [...baseline.tasks, ...tasks, ...tasks].filter(({ cost }) => cost !== "").length);
    await expectAccessible(page);

    // A rank's tasks lead to the costs of those that were planned.
    const rows = page.getByRole("region", { name: "Tasks by timeline" }).locator("tbody tr");
    const costs = (all: Element[]): string[] => all.map((row) => `${row.children[0]!.textContent}: ${row.querySelector("a")?.textContent ?? ""}`);
    const wanted = new Map(tasks.map(({ task, cost }) => [task, `${task}: ${cost}`]));
    const onRank = await rows.filter({ hasText: "Measured" }).evaluateAll(costs);
    expect(onRank).toEqual(onRank.map((one) => wanted.get(one.split(":")[0]!)));
    expect(onRank.some((one) => !one.endsWith(": "))).toBe(true);
    await page.getByRole("application", { name: /^Tasks by stream/ }).focus();
    const said = page.locator(".timeline-says");
    while (!(await said.innerText()).includes("Measured")) await page.keyboard.press("ArrowDown");
    await expect(said.getByRole("link")).toHaveAttribute("href", /version=2.*cost=/);

    // Another workload in the address is the form's, and is said to be another.
    await page.goto(atRun(planner, { run: run.run, workload: JSON.stringify(workload) }));
    await expect(titles(page)).toHaveCount(3);
    await expect(summary.getByText(/^The workload of this address/)).toHaveCount(0);
    await page.goto(atRun(planner, { run: run.run, workload: JSON.stringify({ ...workload, phase: "TRAINING" }) }));
    await expect(summary.getByText(/^The workload of this address is another than the run's, in Phase:/)).toBeVisible();
    await expect(titles(page).nth(1)).toContainText("PIPELINE");
    await expect(field(page, "phase")).toHaveValue("TRAINING");
    expect(planned).toEqual([]);

    // What is planned today is asked for in so many words.
    await page.getByRole("link", { name: "what is planned for its layer today" }).click();
    await answered(page);
    await expect(page.locator(".headline h2")).toHaveText(describePlan(best!));
    await page.goBack();
    await page.getByRole("button", { name: "Plan", exact: true }).click();
    await answered(page);
    await expect(page).not.toHaveURL(/run=/);
    expect(workloadIn(page)).toMatchObject({ phase: "TRAINING" });
  });

  test("says what of its costs was extrapolated, and what is asked from there is asked of its profile", async ({ page, planner }) => {
    const long = { ...workload, layer: { ...workload.layer, sequenceLength: 131_072 } };
    const answer = await answerOf(planner, { workload: long, view: "FULL" });
    await planner.call("PlannerService/ReportRun", { requestId: "long", plan: { ...answer, candidates: [], warnings: [] }, ranks: [{ rank: 0, timeline: answer.best!.timeline }] });
    const run = await lastRun(planner);
    const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
    await planner.call("ProfileService/PutProfile", { requestId: "newer", profile: { ...profile, name: "newer" } });
    await page.goto(atRun(planner, { run: run.run }));
    const { warnings } = await explainedOf(planner, answer.best!, long);
    expect(warnings.some((warning) => warning.includes("extrapolated"))).toBe(true);
    await section(page, "Timeline").locator("summary", { hasText: /warnings?$/ }).click();
    for (const warning of warnings) await expect(section(page, "Timeline")).toContainText(warning);

    await expect(page.getByRole("combobox", { name: "Profile" })).toHaveValue("west");
    await page.getByLabel("Version").fill("1");
    await page.getByLabel("Version").blur();
    await answered(page);
    await expect(page.locator(".headline")).toContainText("west version 1");
  });

  test("of a profile from a file is shown as it was planned, without costs", async ({ page, planner, emptyPlanner }) => {
    const folder = temporaryFolder();
    const file = join(folder.path, "profile.json");
    const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
    writeFileSync(file, JSON.stringify(profile));
    ran(["--profile", file], ["--db", emptyPlanner.db]);
    folder.remove();
    const run = await lastRun(emptyPlanner);
    expect(run.profileVersion).toBe(0);
    const asked: string[] = [];
    page.on("request", (request) => { if (/PlannerService\/(Plan|ExplainPlan)$/.test(request.url())) asked.push(request.url()); });
    await page.goto(atRun(emptyPlanner, { run: run.run }));
    await expect(page.getByText("Its profile came from a file and is not stored: there are no costs to show, and no critical path. The timeline below is the one that was answered then.")).toBeVisible();
    await expect(titles(page).filter({ hasText: "Planned" })).toContainText(`${text.seconds(run.predictedTimeS)}: ${describePlan(run.plan!)}`);
    await expect(titles(page).filter({ hasText: "Measured" })).toHaveCount(1);
    await expect(page.locator("[data-fact=critical]")).toHaveText("not known");
    await expect(section(page, "Timeline").getByRole("link")).toHaveCount(0);
    expect(asked).toEqual([]);
    await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toHaveCount(0);
    await expectAccessible(page);
  });

  test("of a version that is not stored says so, and keeps its timeline", async ({ page, planner }) => {
    ran(["--planner", planner.grpcAddress, "--profile-name", "west"], ["--db", planner.db]);
    const run = await lastRun(planner);
    expect(run.profileVersion).toBe(2);
    // The store keeps versions that plans refer to; another planner's database may have lost one.
    await page.route("**/*.PlannerService/ExplainPlan", (route) => route.fulfill({ status: 404, json: { code: "NOT_FOUND", message: "holds no version 2 of profile 'west'" } }));
    await page.goto(atRun(planner, { run: run.run }));
    await expect(page.getByText(/^What it was planned with is not stored any more.* The timeline below is the one that was answered then\.$/)).toBeVisible();
    await expect(page.getByText(/^Without costs and critical path: .*west/)).toBeVisible();
    await expect(titles(page).filter({ hasText: "Planned" })).toContainText(describePlan(run.plan!));
    await expect(section(page, "Timeline").getByRole("link")).toHaveCount(0);
  });

  test("of a training graph says what it is, and so does one that cannot be read", async ({ page, planner }) => {
    const summary = { run: 7, createdAt: "2026-01-01T00:00:00Z", profileName: "", profileVersion: 0, workloadName: "", predictedTimeS: 2e-3, measuredTimeS: 3e-3, requestId: "" };
    const answer = { profileName: "", profileVersion: 0, skippedRules: [], skippedCandidates: [], warnings: [], candidates: [], explanation: "" };
    const lancet = { weightGradients: [], partitions: [], unscheduledTimeS: 4e-3, timeS: 2e-3, order: ["a", "b", "c"] };
    await page.route("**/*.PlannerService/GetRun", (route) => route.fulfill({ json: { run: summary, plan: { ...answer, rules: { lancet } }, ranks: [] } }));
    await page.goto(atRun(planner, { run: 7 }));
    await expect(section(page, "Run 7")).toContainText("3 instructions in 2 ms rather than 4 ms as they were given");
    await expect(page.getByRole("alert")).toHaveCount(0);
    await page.unroute("**/*.PlannerService/GetRun");
    await page.route("**/*.PlannerService/GetRun", (route) => route.fulfill({ json: { run: summary, ranks: [] } }));
    await page.reload();
    await expect(section(page, "Run 7")).toContainText("cannot be read");
    await expectAccessible(page);
  });

  test("that is not there is said, and nothing else is planned in its place", async ({ page, planner }) => {
    await page.goto(atRun(planner, { run: 999, workload: JSON.stringify(workload) }));
    await expect(page.getByRole("alert")).toContainText("999");
    await expect(section(page, "Candidates")).toHaveCount(0);
    await page.goto(atRun(planner, { run: "x", workload: JSON.stringify(workload) }));
    await expect(page.getByRole("alert")).toContainText("run x, which is no number");
    await expect(section(page, "Candidates")).toHaveCount(0);
  });
});
