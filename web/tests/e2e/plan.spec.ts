// The Plan view over real planners: what it asks, what it shows of the answer, and what it says when there is none.
import { readFileSync } from "node:fs";

import type { Plan, PlanResponse } from "../../generated/moeplan/v1/plan";
import type { ExplainRulesResponse, SweepResponse } from "../../generated/moeplan/v1/planner_service";
import type { GetCurveResponse } from "../../generated/moeplan/v1/profile_service";
import { describePlan } from "../../src/describe";
import * as text from "../../src/format";
import { hrefOf } from "../../src/route";
import { pieces } from "../../src/views/plan/costs";
import { byTask, contentionOf, dearestCosts, pathWords, taskWords } from "../../src/views/plan/explained";
import { unitOf } from "../../src/views/plan/plan_facts";
import { expect, expectAccessible, expectFits, hold, hostileName, test, workloads } from "./fixtures";
import { addressOf, answered, answerOf, example, explainedOf, field, section, workload, workloadIn } from "./plan_page";

test.describe("the answer", () => {
  test("says what to run, what it takes and how sure that is", async ({ page, planner }) => {
    const answer = await answerOf(planner);
    const best = answer.best!;
    await page.goto(addressOf(planner));
    const headline = section(page, describePlan(best));
    await expect(headline).toContainText(text.seconds(best.predictedTimeS));
    await expect(headline).toContainText(`${text.seconds(best.lowS)} to ${text.seconds(best.highS)}`);
    const baseline = answer.candidates.find(({ schedule }) => schedule.startsWith("BASELINE"))!;
    await expect(headline).toContainText(`${text.factor(baseline.predictedTimeS / best.predictedTimeS)} as fast as`);
    await expect(headline).toContainText(`of ${text.count(answer.search!.evaluated)} candidates priced`);
    await expect(headline).toContainText(answer.explanation);
    for (const { rule } of answer.skippedRules) await expect(headline).toContainText(rule);
    const versionless = await headline.getByRole("link").evaluateAll((links) => links.map((link) => link.getAttribute("href")!).filter((href) => !href.includes("version=")));
    expect(versionless).toEqual([]);
  });

  test("links the costs that its words name, whichever candidate is shown, and asks for no curve", async ({ page, planner }) => {
    const { explanation, candidates } = await answerOf(planner);
    const { costs } = await planner.call<GetCurveResponse>("ProfileService/GetCurve", { profileName: "west", maxSamples: 1 });
    const named = pieces(explanation, costs).filter(({ cost }) => cost !== undefined).map((piece) => piece.text);
    expect(named.length).toBeGreaterThan(2);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    for (const candidate of [0, candidates.length - 1]) {
      await page.goto(addressOf(planner, { candidate }));
      await expect(page.locator(".headline > p a[href*='cost=']")).toHaveText(named);
    }
    expect(asked.filter((path) => path.endsWith("GetCurve"))).toEqual([]);
  });

  test("leads from a term to its curve", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    await page.locator(".headline a[href*='cost=']").first().click();
    await expect(page.getByRole("heading", { level: 1, name: "Curves" })).toBeVisible();
    expect(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("profile")).toBe("west");
  });

  test("names the costs that its time is made of, the dearest first, which lead to samples, fit, version and agent", async ({ page, planner }) => {
    const answer = await answerOf(planner);
    const { plan, tasks } = await explainedOf(planner, answer.best);
    const costs = dearestCosts(plan!.timeline, byTask(tasks));
    expect(costs.length).toBeGreaterThan(2);
    await page.goto(addressOf(planner));
    await answered(page);
    const links = page.locator(".priced-from a");
    await expect(links).toHaveText(costs.map(({ cost }) => cost));
    await links.first().click();
    await expect(page.locator("#curve-title")).toContainText(costs[0]!.cost);
    await expect(page.locator(".curve")).toContainText("version 2");
    await expect(page.locator("#samples-title ~ .table-scroll thead")).toContainText(/agent/i);
    await expect(page.locator("#samples-title ~ .table-scroll tbody tr").first()).toBeVisible();
  });

  for (const scheme of ["light", "dark"] as const) {
    test(`breaks no rule of accessibility, ${scheme}`, async ({ page, planner }) => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.goto(addressOf(planner, { mapY: "layer.batch", mapXs: "256,512", mapYs: "1,2" }));
      await answered(page);
      await page.getByText("More fields").click();
      await expect(page.locator(".heat-box")).toBeVisible();
      await expect(page.getByText("Swept 4 points.")).toBeVisible();
      for (const details of await page.getByText("As a table").all()) await details.click();
      await page.locator(".timeline-box-area").focus();
      await expectAccessible(page);
    });
  }

  test("fits a phone", async ({ page, planner }) => {
    await page.setViewportSize({ width: 400, height: 800 });
    await page.goto(addressOf(planner, { mapY: "layer.batch", mapXs: "256,512,1024", mapYs: "1,2" }));
    await answered(page);
    await expect(page.locator(".heat-box")).toBeVisible();
    await expect(page.getByText("Swept 6 points.")).toBeVisible();
    for (const details of await page.getByText("As a table").all()) await details.click();
    await page.getByText("More fields").click();
    await expectFits(page);
    await expectAccessible(page);
  });

  test("is saved as a file, and its link is copied", async ({ page, planner, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(addressOf(planner));
    await answered(page);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download answer (JSON)" }).click()]);
    expect(download.suggestedFilename()).toBe(`plan-${workload.name}.json`);
    const saved = JSON.parse(readFileSync(await download.path(), "utf8")) as PlanResponse;
    expect(saved).toEqual(await answerOf(planner));
    await page.getByRole("button", { name: "Copy link" }).click();
    await expect(page.getByText("Link copied.")).toBeVisible();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(`${page.url()}&version=2`);
  });
});

test.describe("the question", () => {
  test("starts from the example, and the address brings it back", async ({ page, planner }) => {
    await page.goto(`${planner.url}#/plan`);
    await expect(field(page, "layer.sequenceLength")).toHaveValue("1024");
    await expect(page.getByText("The form holds an example")).toBeVisible();
    await page.getByRole("combobox", { name: "Profile" }).selectOption("west");
    for (const [name, value] of Object.entries(workload.layer)) await field(page, `layer.${name}`).fill(String(value));
    await field(page, "layout.tensorParallel").fill("2");
    await field(page, "layout.expertParallel").fill("4");
    await page.keyboard.press("Enter");
    await answered(page);
    expect(workloadIn(page)["layer"]).toMatchObject(workload.layer);
    await page.reload();
    await answered(page);
    await expect(field(page, "layout.expertParallel")).toHaveValue("4");
  });

  test("stands apart from the answer before while the next is awaited", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    const explained: unknown[] = [];
    page.on("request", (request) => { if (request.url().endsWith("/ExplainRules")) explained.push(request.postDataJSON()); });
    const go = await hold(page, "Plan");
    await field(page, "layer.sequenceLength").fill("1024");
    await page.keyboard.press("Enter");
    await expect(page.getByRole("status").filter({ hasText: "Planning …" })).toBeVisible();
    await expect(page.locator(".old-answer")).toHaveAttribute("aria-busy", "true");
    expect(explained).toEqual([]);
    await go();
    await expect(page.locator(".old-answer")).toHaveCount(0);
    await expect.poll(() => explained.length).toBe(1);
    expect(explained[0]).toMatchObject({ workload: { layer: { sequenceLength: 1024 } } });
  });

  test("goes back with the browser", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    await field(page, "layer.sequenceLength").fill("1024");
    await expect(page.getByText("Changed since the plan that is shown.")).toBeVisible();
    await page.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(page.getByText("Changed since the plan that is shown.")).toBeHidden();
    await page.goBack();
    await expect(field(page, "layer.sequenceLength")).toHaveValue(String(workload.layer["sequenceLength"]));
  });

  test("shows what is refused at its field", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    await field(page, "layer.topK").fill("99");
    await page.keyboard.press("Enter");
    const wrong = field(page, "layer.topK");
    await expect(wrong).toHaveAttribute("aria-invalid", "true");
    await expect(wrong).toBeFocused();
    await expect(wrong).toHaveAccessibleDescription(/found 99, expected at most layer.experts/);
    await expect(page.getByRole("alert")).toContainText("layer.topK");
    await expectAccessible(page);
    await wrong.fill("2");
    await page.keyboard.press("Enter");
    await answered(page);
    await expect(page.getByRole("alert")).toHaveCount(0);
  });

  test("opens what is folded when the field that is refused is behind", async ({ page, planner }) => {
    await page.goto(addressOf(planner, { workload: JSON.stringify({ ...workload, routing: { skew: -1 } }) }));
    await expect(field(page, "routing.skew")).toBeVisible();
    await expect(field(page, "routing.skew")).toHaveAttribute("aria-invalid", "true");
  });

  test("does not ask what is wrong on the face of it", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    const before = page.url();
    await field(page, "layer.batch").fill("many");
    await page.keyboard.press("Enter");
    await expect(field(page, "layer.batch")).toHaveAccessibleDescription("not a number");
    expect(page.url()).toBe(before);
  });

  test("may be JSON, and what the planner does not know is refused by name", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    await page.getByText("As JSON").click();
    const json = page.getByLabel(/^Workload, as/);
    await json.fill("{ nothing");
    await page.getByRole("button", { name: "Use this JSON" }).click();
    await expect(json).toHaveAccessibleDescription(/^Not JSON/);
    await json.fill(JSON.stringify({ ...workload, strange: 1 }));
    await page.getByRole("button", { name: "Use this JSON" }).click();
    await page.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(page.getByRole("alert")).toContainText("strange");
  });

  test("takes the layer of a Hugging Face model", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    await page.getByText("From a Hugging Face config.json").click();
    const config = page.getByLabel("config.json of a model with experts");
    const fill = page.getByRole("button", { name: "Fill in its layer" });
    await config.fill('{"architectures": ["LlamaForCausalLM"]}');
    await fill.click();
    await expect(page.getByRole("alert")).toBeVisible();
    await page.route("**/*.PlannerService/ImportModel", (route) => route.fulfill({ json: { layers: 32, moeLayers: 0 } }));
    await fill.click();
    await expect(page.getByRole("alert")).toHaveText("This model is dense: none of its 32 layers has experts.");
    await page.unroute("**/*.PlannerService/ImportModel");
    await config.fill(example("mixtral-8x7b.config.json"));
    await fill.click();
    await expect(page.getByText("32 of 32 layers of the model have experts")).toBeVisible();
    await expect(field(page, "layer.hiddenDim")).toHaveValue("14336");
    await expect(field(page, "layout.tensorParallel")).toHaveValue("2");
    await expect(page.getByRole("alert")).toHaveCount(0);
  });

  test("takes a model's layer into the form as it is by then", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    const go = await hold(page, "ImportModel");
    await page.getByText("From a Hugging Face config.json").click();
    await page.getByLabel("config.json of a model with experts").fill(example("mixtral-8x7b.config.json"));
    await page.getByRole("button", { name: "Fill in its layer" }).click();
    await expect(page.getByRole("button", { name: "Asking …" })).toBeDisabled();
    await field(page, "layout.tensorParallel").fill("4");
    await go();
    await expect(field(page, "layer.hiddenDim")).toHaveValue("14336");
    await expect(field(page, "layout.tensorParallel")).toHaveValue("4");
  });

  test("offers estimates where a cost was not measured", async ({ page, planner }) => {
    const unmeasured = { ...workload, layout: { tensorParallel: 1, expertParallel: 2, expertShardingParallel: 1 } };
    await page.goto(addressOf(planner, { workload: JSON.stringify(unmeasured) }));
    await expect(page.getByRole("alert").first()).toContainText("lacks");
    await page.getByRole("link", { name: "plan with estimates" }).click();
    await answered(page);
    await expect(page.getByLabel("Estimate costs that were not measured")).toBeChecked();
  });

  test("says which profile is missing, and that an address holds no workload", async ({ page, planner }) => {
    await page.goto(addressOf(planner, { profile: "nowhere" }));
    await expect(page.getByRole("alert").first()).toContainText("nowhere");
    await page.goto(addressOf(planner, { workload: "{" }));
    await expect(page.getByRole("alert").first()).toContainText("The workload of this address");
  });
});

test.describe("the timeline", () => {
  test("adds up to the planner's own numbers, for every candidate that is looked at", async ({ page, planner }) => {
    const { candidates } = await answerOf(planner);
    for (const index of [0, 1, Math.floor(candidates.length / 2), candidates.length - 1]) {
      const plan = candidates[index]!;
      await page.goto(addressOf(planner, { candidate: index }));
      await expect(page.locator("[data-fact=exposed]")).toContainText(`${text.seconds(plan.exposedCommunicationS)} of ${text.seconds(plan.communicationTimeS)}`);
      await expect(page.locator("[data-fact=critical]")).toContainText(text.seconds(plan.predictedTimeS));
      await expect(page.locator("[data-fact=critical]")).not.toContainText("gap");
      await expect(page.locator(".timeline-title").filter({ hasText: "Shown" })).toContainText(describePlan(plan));
    }
  });

  test("is walked by keyboard, nearer and further", async ({ page, planner }) => {
    const { candidates } = await answerOf(planner);
    const shown = candidates.findIndex(({ schedule }) => !schedule.startsWith("BASELINE"));
    await page.goto(addressOf(planner, { candidate: shown }));
    await answered(page);
    const chart = page.getByRole("application", { name: /^Tasks by stream/ });
    const said = page.locator(".timeline-says");
    await chart.focus();
    await expect(said).toContainText("gate");
    await page.keyboard.press("End");
    await expect(said).toContainText("combine");
    await page.keyboard.press("ArrowDown");
    await expect(said).toContainText("node");
    await page.keyboard.press("Home");
    const tools = page.locator(".timeline-tools");
    const before = await tools.innerText();
    await page.keyboard.press("+");
    await expect(tools).not.toHaveText(before, { useInnerText: true });
    await page.keyboard.press("PageDown");
    await page.keyboard.press("0");
    await expect(tools).toHaveText(before, { useInnerText: true });
    for (let i = 0; i < 8; ++i) await page.keyboard.press("ArrowDown");
    await expect(said).toContainText("Shown");
  });

  test("tells what the pointer is on, and has a table", async ({ page, planner }) => {
    const { candidates } = await answerOf(planner);
    await page.goto(addressOf(planner));
    await answered(page);
    await page.locator(".timeline-catch").hover({ position: { x: 20, y: 36 } });
    await expect(page.locator(".timeline-says")).toContainText("gate");
    await section(page, "Timeline").getByText("As a table").click();
    const rows = page.getByRole("region", { name: "Tasks by timeline" }).getByRole("row");
    const baseline = candidates.find(({ schedule }) => schedule.startsWith("BASELINE"))!;
    const sections: Plan[] = candidates[0] === baseline ? [baseline] : [baseline, candidates[0]!];
    await expect(rows).toHaveCount(1 + sections.reduce((sum, { timeline }) => sum + timeline.length, 0));
  });

  test("says of each task what the planner says: its cost with its curve, its time alone, what released it, and the critical path", async ({ page, planner }) => {
    const { candidates, profileVersion } = await answerOf(planner);
    const explained = await Promise.all(candidates.map((plan) => explainedOf(planner, { ...plan, timeline: [] })));
    const waits = (index: number): boolean => explained[index]!.tasks.some((task, at) => contentionOf(explained[index]!.plan!.timeline[at]!, task) > 0);
    const index = candidates.findIndex(({ schedule }, at) => !schedule.startsWith("BASELINE") && waits(at));
    expect(index).toBeGreaterThanOrEqual(0);
    const baseline = candidates.findIndex(({ schedule }) => schedule.startsWith("BASELINE"));
    const asked: { plan: Plan }[] = [];
    page.on("request", (request) => { if (request.url().endsWith("/ExplainPlan")) asked.push(request.postDataJSON() as { plan: Plan }); });
    await page.goto(addressOf(planner, { candidate: index }));
    await answered(page);
    const { plan, tasks } = explained[index]!;
    await expect(page.locator("[data-fact=critical]")).toHaveText(pathWords(plan!.timeline, byTask(tasks)));
    // What is known of a plan anyway is not sent.
    expect(asked.map((one) => [one.plan.schedule, one.plan.order, one.plan.timeline])).toEqual(
      [candidates[index]!, candidates[baseline]!, ...(index === 0 ? [] : [candidates[0]!])].map(({ schedule, order }) => [schedule, order, []]));

    await section(page, "Timeline").getByText("As a table").click();
    const wanted = [explained[baseline]!, explained[index]!].flatMap((one) => one.tasks);
    const rows = page.getByRole("region", { name: "Tasks by timeline" }).locator("tbody tr");
    await expect(rows).toHaveCount(wanted.length);
    const told = await rows.evaluateAll((all) => all.map((row) => ({
      cells: [...row.children].map((cell) => cell.textContent), href: row.querySelector("a")?.getAttribute("href") ?? null,
    })));
    expect(told.map(({ cells, href }) => [cells[0], cells[8], cells[10], cells[11], href])).toEqual(wanted.map((task) => [
      task.task, text.seconds(task.aloneS), task.releasedBy, task.critical ? "yes" : "",
      task.cost === "" ? null : hrefOf("curves", { profile: "west", version: profileVersion, cost: task.cost, size: task.size }),
    ]));

    // By keyboard: to the shown plan's first task, on to its cost, and to its curve.
    const first = tasks.find(({ task }) => task === plan!.timeline.filter(({ stream }) => stream === "COMPUTE").sort((a, b) => a.startS - b.startS)[0]!.task)!;
    await page.getByRole("application", { name: /^Tasks by stream/ }).focus();
    const said = page.locator(".timeline-says");
    while (!(await said.innerText()).includes("Shown")) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Home");
    while (!/chunk \d+, compute;/.test(await said.innerText())) await page.keyboard.press("ArrowUp");
    await expect(said).toContainText(taskWords(plan!.timeline.find(({ task }) => task === first.task)!, first));
    await page.keyboard.press("Tab");
    await expect(said.getByRole("link", { name: first.cost })).toBeFocused();
    await expect(said).toContainText(first.task);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("heading", { level: 1, name: "Curves" })).toBeVisible();
    await expect(page.locator("#curve-title")).toHaveText(first.cost);
    // At the very size of the task, where the curve says what the plan took it to say.
    await expect(page.locator(".sample-chart .rule.asked")).toHaveCount(1);
    await expect(page.locator(".curve")).toContainText(`At ${text.sizeOf(unitOf(first.cost), first.size)} the curve says ${text.seconds(first.aloneS)}`);
  });

  test("is drawn while its costs are awaited, and when they do not come", async ({ page, planner }) => {
    let go = (): void => undefined;
    const held = new Promise<void>((done) => { go = done; });
    await page.route("**/*.PlannerService/ExplainPlan", async (route) => {
      await held;
      await route.fulfill({ status: 500, json: { code: "INTERNAL", message: "nobody knows" } });
    });
    await page.goto(addressOf(planner));
    await answered(page);
    const timeline = section(page, "Timeline");
    await expect(timeline.getByText("Asking what is behind the tasks …")).toBeVisible();
    await expect(page.locator(".timeline-title").filter({ hasText: "Shown" })).toBeVisible();
    go();
    await expect(timeline.getByText("Without costs and critical path: nobody knows")).toBeVisible();
    await expect(page.locator("[data-fact=critical]")).toHaveText("not known");
    await page.getByRole("application", { name: /^Tasks by stream/ }).focus();
    await expect(page.locator(".timeline-says")).toContainText("gate");
    await expect(timeline.getByRole("link")).toHaveCount(0);
    await expectAccessible(page);
  });

  test("leads from a predicted cost to no curve", async ({ page, planner }) => {
    const unmeasured = { ...(workloads[1] as Record<string, unknown>), layout: { tensorParallel: 2, expertParallel: 2, expertShardingParallel: 2 } };
    await page.goto(addressOf(planner, { workload: JSON.stringify(unmeasured), extrapolate: "1" }));
    await answered(page);
    await expect(page.locator("[data-fact=critical]")).toContainText("tasks");
    await section(page, "Timeline").getByText("As a table").click();
    const predicted = page.getByRole("region", { name: "Tasks by timeline" }).getByRole("row").filter({ hasText: "predicted from links at" });
    await expect(predicted.first()).toBeVisible();
    await expect(predicted.getByRole("link")).toHaveCount(0);
  });
});

test("text that is half typed stays while answers arrive", async ({ page, planner }) => {
  const go = await hold(page, "ExplainPlan");
  await page.goto(addressOf(planner));
  await answered(page);
  await page.getByText("Which schedule wins where").click();
  const lengths = page.getByLabel("Sequence lengths, tokens");
  const version = page.getByLabel("Version", { exact: true });
  await version.fill("9");
  await lengths.evaluate((input: HTMLInputElement) => { input.value = "256,5"; input.dispatchEvent(new InputEvent("input", { bubbles: true })); });
  await go();
  await expect(page.locator("[data-fact=critical]")).toContainText("tasks");
  await expect(lengths).toHaveValue("256,5");
  await expect(version).toHaveValue("9");
});

test.describe("candidates", () => {
  test("are chosen by a button, by a bar and by the address, and sorted", async ({ page, planner }) => {
    const { candidates } = await answerOf(planner);
    await page.goto(addressOf(planner));
    await answered(page);
    const table = page.getByRole("region", { name: /^Candidates, best first/ });
    await expect(table.getByRole("row")).toHaveCount(candidates.length + 1);
    await table.getByRole("button", { name: describePlan(candidates[2]!), exact: true }).first().click();
    await expect(page).toHaveURL(/candidate=2/);
    await expect(page.locator(".timeline-title").filter({ hasText: "Shown" })).toContainText(describePlan(candidates[2]!));
    await page.locator(".bars-pickable").nth(1).click();
    await expect(page).toHaveURL(/candidate=1/);
    await table.getByRole("button", { name: "Memory" }).click();
    const least = [...candidates].sort((a, b) => a.memoryBytes - b.memoryBytes)[0]!;
    await expect(table.getByRole("row").nth(1)).toContainText(text.bytes(least.memoryBytes));
  });
});

test.describe("rules", () => {
  test("hold no number of the question before while those of the next are awaited", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await expect(page.locator(".rule").first()).toBeVisible();
    const go = await hold(page, "ExplainRules");
    await field(page, "layer.sequenceLength").fill("1024");
    await page.keyboard.press("Enter");
    await expect(page.locator(".old-answer")).toHaveCount(0);
    await expect(page.getByText("Filling in the formulas …")).toBeVisible();
    await expect(page.locator(".rule")).toHaveCount(0);
    await go();
    await expect(page.locator(".rule").first()).toBeVisible();
  });

  test("stand with their numbers, beside the search", async ({ page, planner }) => {
    const explained = await planner.call<ExplainRulesResponse>("PlannerService/ExplainRules", { workload, profileName: "west" });
    const answer = await answerOf(planner);
    await page.goto(addressOf(planner));
    const rules = section(page, "What each paper's rule says");
    for (const { times, definitions, skipped } of explained.rules) {
      if (skipped !== "") continue;
      for (const time of times) await expect(rules).toContainText(`${time.name} = ${time.formula} = ${text.seconds(time.timeS)}`);
      for (const definition of definitions) await expect(rules).toContainText(definition);
    }
    await expect(rules).toContainText("chosen by the rule");
    await expect(rules).toContainText(`${answer.rules!.parm!.choice}`);
    await expect(rules.locator("a[href*='cost=']").first()).toHaveAttribute("href", /version=2/);
  });

  test("that rest on predicted costs are explained, and such costs lead to no curve", async ({ page, planner }) => {
    const unmeasured = { ...(workloads[1] as Record<string, unknown>), layout: { tensorParallel: 2, expertParallel: 2, expertShardingParallel: 2 } };
    await page.goto(addressOf(planner, { workload: JSON.stringify(unmeasured), extrapolate: "1" }));
    const rules = section(page, "What each paper's rule says");
    await expect(rules).toContainText("(not measured: estimated from the links)");
    await expect(rules).not.toContainText("Did not answer");
  });
});

test.describe("the map", () => {
  const mapped = { mapY: "layer.batch", mapXs: "256,512,1024", mapYs: "1,2" };

  test("is drawn when asked for, told by keyboard, and opens a point", async ({ page, planner }) => {
    let asked = 0;
    page.on("request", (request) => { if (request.url().endsWith("/Sweep")) ++asked; });
    await page.goto(addressOf(planner));
    await answered(page);
    await page.getByText("Which schedule wins where").click();
    await page.getByLabel("Sequence lengths, tokens").fill(mapped.mapXs);
    await page.getByLabel("Its values").fill(mapped.mapYs);
    await page.getByLabel("Its values").blur();
    expect(asked).toBe(0);
    await page.getByRole("button", { name: "Draw the map" }).click();
    const map = page.getByRole("application", { name: /^Best schedule over/ });
    await expect(page.getByText("Swept 6 points.")).toBeVisible();
    await map.focus();
    expect(asked).toBe(1);
    const { points } = await planner.call<SweepResponse>("PlannerService/Sweep", {
      workload, profileName: "west", axes: ["layer.batch=1,2", "layer.sequenceLength=256,512,1024"],
    });
    const said = page.locator(".heat-says");
    // The cursor starts at the workload's own point, (512, 1).
    await expect(said).toContainText(describePlan(points[1]!.row!.best!));
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("End");
    const last = points[5]!;
    await expect(said).toContainText(text.seconds(last.row!.best!.predictedTimeS));
    await expect(said).toContainText(describePlan(last.runnerUp!));
    await page.keyboard.press("Enter");
    await expect(field(page, "layer.batch")).toHaveValue("2");
    await expect(field(page, "layer.sequenceLength")).toHaveValue("1024");
    await expect(page.locator(".headline")).toContainText(text.seconds(last.row!.best!.predictedTimeS));
    expect(asked).toBe(1);
    await page.reload();
    await expect(page.getByText("Swept 6 points.")).toBeVisible();
    expect(asked).toBe(2);
    await page.locator("section", { has: page.locator("#plan-map") }).getByText("As a table").click();
    await expect(page.getByRole("region", { name: "Best schedule by point" }).getByRole("row")).toHaveCount(7);
  });

  test("opens a point that is clicked", async ({ page, planner }) => {
    await page.goto(addressOf(planner, mapped));
    await expect(page.getByText("Swept 6 points.")).toBeVisible();
    await page.locator(".heat-pickable").click({ position: { x: 10, y: 10 } });
    await expect(field(page, "layer.batch")).toHaveValue("2");
    await expect(field(page, "layer.sequenceLength")).toHaveValue("256");
  });

  test("is called off, and says which axis is wrong", async ({ page, planner }) => {
    await page.route("**/*.PlannerService/Sweep", async (route) => {
      await new Promise((done) => setTimeout(done, 1500));
      await route.continue().catch(() => undefined);
    });
    await page.goto(addressOf(planner, { ...mapped, mapXs: "256,512,1024,2048,4096,8192,16384", mapYs: "1,2,3,4,5,6,7,8" }));
    await expect(page.getByText("Sweeping: 0 of 56 points …")).toBeVisible();
    await page.getByRole("button", { name: "Cancel" }).click();
    await expect(page.getByText("Cancelled after 0 of 56 points.")).toBeVisible();
    await page.unroute("**/*.PlannerService/Sweep");
    await page.getByLabel("Its values").fill("1, x");
    await page.getByLabel("Its values").blur();
    await expect(page.getByLabel("Its values")).toHaveAccessibleDescription("x is not a number");
    await page.getByLabel("Its values").fill("1.5");
    await page.getByLabel("Its values").blur();
    await page.getByRole("button", { name: "Draw the map" }).click();
    await expect(page.getByRole("alert")).toContainText("1.5");
  });

  test("does not open points of the profile", async ({ page, planner }) => {
    await page.goto(addressOf(planner, { mapY: "cluster.nic.scale", mapXs: "512", mapYs: "1,2" }));
    await expect(page.getByText("cluster.nic.scale belongs to the profile")).toBeVisible();
    await page.getByRole("link", { name: "What-if", exact: true }).last().click();
    await expect(page.getByRole("heading", { level: 1, name: "What-if" })).toBeVisible();
    await expect(page.getByText("Swept 2 points.")).toBeVisible();
  });
});

test.describe("the candidates' table", () => {
  test("is sorted by its heads, and the address keeps how", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    const head = page.locator(".candidates").getByRole("columnheader", { name: "Memory" });
    await head.getByRole("button").click();
    await expect(page).toHaveURL(/sort=memory/);
    await page.reload();
    await expect(head).toHaveAttribute("aria-sort", "ascending");
  });
});

test.describe("when things are not as they should be", () => {
  test("an empty database says what to do", async ({ page, emptyPlanner }) => {
    await page.goto(`${emptyPlanner.url}#/plan`);
    await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toBeVisible();
    await expect(page.locator("main")).toContainText("moeplan calibrate");
    await expectAccessible(page);
    await page.goto(addressOf(emptyPlanner, { profile: "" }));
    await expect(page.getByRole("alert")).toBeVisible();
  });

  test("what an empty database could not plan is planned once a profile is stored", async ({ page, planner, emptyPlanner }) => {
    await page.goto(addressOf(emptyPlanner));
    await expect(page.getByRole("alert")).toBeVisible();
    await expect(page.getByRole("heading", { name: "No profile is stored yet" })).toBeVisible();
    const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
    await emptyPlanner.call("ProfileService/PutProfile", { requestId: "first", profile });
    await expect(section(page, "Candidates")).toBeVisible({ timeout: 15_000 });
    await expect(page.getByRole("alert")).toHaveCount(0);
  });

  test("hostile names are text", async ({ page, planner }) => {
    const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
    await planner.call("ProfileService/PutProfile", { requestId: "hostile", profile: { ...profile, name: hostileName } });
    await page.goto(addressOf(planner, { profile: hostileName, workload: JSON.stringify({ ...workload, name: hostileName }) }));
    await answered(page);
    await expect(page.locator(".headline")).toContainText(hostileName);
    await expect(page.getByRole("combobox", { name: "Profile" })).toHaveValue(hostileName);
    expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBeUndefined();
    await expect(page.locator("img")).toHaveCount(0);
    await page.goto(addressOf(planner, { workload: JSON.stringify({ ...workload, [hostileName]: 1 }) }));
    await expect(page.getByRole("alert")).toContainText("onerror");
    await expect(page.locator("img")).toHaveCount(0);
  });

  test("a planner that goes away leaves what was shown, and is asked again when it is back", async ({ page, planner }) => {
    await page.goto(addressOf(planner));
    await answered(page);
    const best = await page.locator(".headline h2").innerText();
    await planner.stop("SIGKILL");
    await page.getByRole("button", { name: "Plan", exact: true }).click();
    await expect(page.getByText(/The planner does not answer since/)).toBeVisible();
    await expect(page.locator(".headline h2")).toHaveText(best);
    await planner.restart();
    await expect(page.getByText(/The planner does not answer since/)).toBeHidden({ timeout: 15_000 });
    await expect(page.locator(".headline h2")).toHaveText(best);
    await expect(page.getByRole("alert")).toHaveCount(0);
  });
});
