// Layouts of a whole model, ranked by a real planner.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import type { RankLayoutsResponse } from "../../generated/moeplan/v1/planner_service";
import * as text from "../../src/format";
import { expect, expectAccessible, expectFits, hold, hostileName, test } from "./fixtures";
import { root } from "./planner";

const mixtral = JSON.parse(readFileSync(join(root, "deploy/examples/mixtral-8x7b.config.json"), "utf8")) as Record<string, unknown>;
/** One that a few GPUs of 40 GB hold. */
const small = { ...mixtral, hidden_size: 1024, intermediate_size: 2048, num_hidden_layers: 8, num_attention_heads: 16, num_key_value_heads: 8 };
const request = { model: small, profileName: "west", gpus: 8, globalBatch: 32, sequenceLength: 1024 };

const address = (changes: Record<string, string> = {}): string =>
  `#/layouts?${new URLSearchParams({ model: JSON.stringify(small), profile: "west", gpus: "8", globalBatch: "32", sequenceLength: "1024", ...changes }).toString()}`;

const ranking = (page: Page) => page.getByRole("region", { name: /^Layouts, fastest first/ });

/** The form without its example: a pasted model on what was measured. */
async function paste(page: Page, model: string): Promise<void> {
  await page.getByRole("combobox", { name: "Model" }).selectOption("");
  await page.getByLabel("Hardware by name").selectOption("");
  await modelText(page).fill(model);
}

const modelText = (page: Page) => page.getByRole("textbox", { name: /^Model/ });

test("layouts of hardware that was only named are ranked without a profile, and its network counts", async ({ page, emptyPlanner }) => {
  const stepOf = async (network: object | undefined): Promise<string> => {
    const named = { modelName: "qwen3-30b-a3b", hardware: "h100-sxm:8x8", network, gpus: 64, globalBatch: 512, sequenceLength: 4096, top: 3 };
    const { result } = await emptyPlanner.call<RankLayoutsResponse>("PlannerService/RankLayouts", named);
    return text.seconds(result!.layouts[0]!.stepTimeS);
  };
  await page.goto(`${emptyPlanner.url}#/layouts`);
  await expect(page.getByText(/^No profile is stored yet, so hardware/)).toBeVisible();
  await page.getByLabel("Layouts to show").fill("3");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByText(/^Priced with public figures of h100-sxm:8x8/)).toBeVisible();
  await expect(ranking(page).locator("tbody tr")).toHaveCount(3);
  await expect(ranking(page).locator("tbody tr").first()).toContainText(await stepOf(undefined));
  await expect(ranking(page).locator("thead")).not.toContainText("look closer");
  await expectAccessible(page);

  const network = page.getByLabel(/^Network/);
  await network.fill("{");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(network).toHaveAttribute("aria-invalid", "true");
  await network.fill('{"oversubscription": 0.5}');
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByRole("alert")).toContainText("network.oversubscription");
  await expect(network).toHaveAttribute("aria-invalid", "true");
  const shared = { nodesPerLeaf: 1, oversubscription: 16 };
  await network.fill(JSON.stringify(shared));
  await page.getByRole("button", { name: "Rank layouts" }).click();
  expect(await stepOf(shared)).not.toBe(await stepOf(undefined));
  await expect(ranking(page).locator("tbody tr").first()).toContainText(await stepOf(shared));
  await expect(page).toHaveURL(/network=/);

  // Costs of hardware that was only named have no curves to lead to.
  await ranking(page).locator("tbody tr").first().getByRole("link", { name: /s$/ }).first().click();
  const details = page.getByRole("region", { name: /^Layout 1: TP / });
  await expect(details.locator(".priced-from li").first()).toBeVisible();
  await expect(details.getByRole("link")).toHaveCount(0);
});

test("what an empty database could not answer is asked again once a profile is stored", async ({ page, planner, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}${address()}`);
  await expect(page.getByText(/^No profile is stored yet/)).toBeVisible();
  await expect(page.getByRole("alert")).toBeVisible();
  const { profile } = await planner.call<{ profile: object }>("ProfileService/GetProfile", { profileName: "west" });
  await emptyPlanner.call("ProfileService/PutProfile", { requestId: "first", profile });
  await expect(ranking(page)).toBeVisible({ timeout: 60_000 });
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a pasted model is ranked as the planner ranks it, and the address shows it again", async ({ page, planner }) => {
  const answer = await planner.call<RankLayoutsResponse>("PlannerService/RankLayouts", request);
  const layouts = answer.result!.layouts;
  expect(layouts.length).toBeGreaterThan(1);

  await page.goto(`${planner.url}#/layouts`);
  await paste(page, JSON.stringify(small));
  await page.getByLabel("GPUs").fill("8");
  await page.getByLabel(/^Global batch/).fill("32");
  await page.getByLabel(/^Sequence length/).fill("1024");
  await page.getByLabel(/^Sequence length/).press("Enter");
  await expect(ranking(page)).toBeVisible();
  await expect(page.getByLabel(/^Sequence length/)).toBeFocused();
  await expect(ranking(page).locator("tbody tr")).toHaveCount(layouts.length);
  const degrees = await ranking(page).locator("tbody tr").first().locator("td").allTextContents();
  const best = layouts[0]!.layout!;
  expect(degrees.slice(0, 6).map(Number)).toEqual([
    best.tensorParallel, best.expertParallel, best.expertShardingParallel, best.contextParallel, best.pipelineParallel, best.dataParallel,
  ]);
  await expect(page.getByText(`${answer.result!.enumerated.toLocaleString("en")} layouts and micro-batches looked at`)).toBeVisible();
  await expect(page.getByRole("img", { name: /^Peak memory of the .* of 37.3 GiB/ })).toBeVisible();
  await expect(page.getByText("limit 37.3 GiB")).toBeVisible();
  await expect(page.getByRole("img", { name: /^Step time of the/ })).toBeVisible();
  await expectAccessible(page);

  await page.reload();
  await expect(ranking(page).locator("tbody tr")).toHaveCount(layouts.length);
  await expect(page.getByLabel("GPUs")).toHaveValue("8");
});

test("every figure of a layout leads to what it is priced from, and that to samples, fit, version and agent", async ({ page, planner }) => {
  const { result } = await planner.call<RankLayoutsResponse>("PlannerService/RankLayouts", request);
  const { costs } = result!.layouts[1]!;
  expect(costs.length).toBeGreaterThan(3);
  await page.goto(`${planner.url}${address()}`);
  const plan = (await ranking(page).getByRole("link", { name: /^Plan its MoE layer/ }).nth(1).getAttribute("href"))!;
  const row = ranking(page).locator("tbody tr").nth(1);
  // All but the degrees, which are the layout.
  const figures = row.locator("td:nth-child(n+9)");
  const hrefs = await figures.evaluateAll((cells) => cells.map((cell) => cell.querySelector("a")?.getAttribute("href") ?? ""));
  const heads = await ranking(page).locator("thead th:nth-child(n+9)").allTextContents();
  expect(heads).toEqual(["step", "tokens/s", "MFU", "memory", "free", "network scale", "bubble", "gradients alone", "MoE layer", "look closer"]);
  expect(hrefs.slice(0, 8).every((href) => /[?&]layout=2$/.test(href))).toBe(true);
  expect(hrefs[8]).toBe(plan);

  await row.getByRole("link", { name: /s$/ }).first().press("Enter");
  const details = page.getByRole("region", { name: /^Layout 2: TP / });
  await expect(page.locator("#layout-title")).toBeFocused();
  await expect(details.locator(".priced-from a")).toHaveText(costs);
  await details.locator(".priced-from a").first().click();
  await expect(page.locator("#curve-title")).toHaveText(costs[0]!);
  await expect(page.locator(".curve")).toContainText("version 2");
  await expect(page.locator("#samples-title ~ .table-scroll thead")).toContainText("Agent");
  await page.goBack();
  const chart = page.getByRole("img", { name: /^Step time of the/ });
  await chart.locator(".bar-pickable").first().click();
  await expect(page.getByRole("region", { name: /^Layout 1: TP / })).toBeVisible();
});

test("where hardware fills in what a profile lacks, costs lead to no curves and layers to no plans", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ hardware: "h100-sxm", layout: "1" })}`);
  await expect(page.getByText(/^Priced with profile west version 2, and with public figures of h100-sxm/)).toBeVisible();
  const details = page.getByRole("region", { name: /^Layout 1: TP / });
  await expect(details.locator(".priced-from li").first()).toBeVisible();
  await expect(details.getByRole("link")).toHaveCount(0);
  await expect(ranking(page).locator("thead")).not.toContainText("look closer");
});

test("a layout before the answer to the next question is said to be of the one before", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ layout: "2" })}`);
  await expect(page.locator("#layout-title")).toBeVisible();
  const go = await hold(page, "RankLayouts");
  await page.goto(`${planner.url}${address({ globalBatch: "64", layout: "2" })}`);
  await expect(page.getByText("Ranking layouts …")).toBeVisible();
  await expect(page.locator(".old-answer[aria-busy=true] #layout-title")).toBeVisible();
  await expect(page.getByRole("button", { name: "Copy link" })).toHaveCount(0);
  await go();
  await expect(page.locator(".old-answer")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Copy link" })).toBeVisible();
});

test("the memory of a layout leads to what it is the sum of, and the address keeps which", async ({ page, planner }) => {
  const { result } = await planner.call<RankLayoutsResponse>("PlannerService/RankLayouts", request);
  const { memoryBytes, memory } = result!.layouts[1]!;
  const parts = [memory!.stateBytes, memory!.keptBytes, memory!.runningBytes, memory!.logitBytes, memory!.otherBytes];
  expect(parts.every((bytes) => bytes >= 0)).toBe(true);
  expect(parts.reduce((sum, bytes) => sum + bytes, 0) / memoryBytes).toBeCloseTo(1, 12);

  await page.goto(`${planner.url}${address()}`);
  await ranking(page).locator("tbody tr").nth(1).getByRole("link", { name: text.bytes(memoryBytes), exact: true }).press("Enter");
  const details = page.getByRole("region", { name: /^Layout 2: TP / });
  for (const bytes of parts) await expect(details).toContainText(`${text.bytes(bytes)}, ${text.percent(bytes / memoryBytes)}`);
  await expect(details.getByRole("link", { name: "37.3 GiB of a GPU" })).toHaveAttribute("href", "#/clusters?profile=west");
  await expect(ranking(page).locator("tr[aria-current=true]")).toContainText("2");
  await expectAccessible(page);
  await page.reload();
  await expect(details).toBeVisible();
  await details.getByRole("button", { name: "Close" }).press("Enter");
  await expect(details).toHaveCount(0);

  const bars = page.getByRole("img", { name: /^Peak memory of the/ });
  await bars.locator(".bar-pickable").first().click();
  await expect(page.getByRole("region", { name: /^Layout 1: TP / })).toBeVisible();
  // Each part begins where the one before ends, and is as long as its bytes.
  const [first, ...rest] = await bars.locator(".bar-pickable").first().locator(".bar-mark").evaluateAll((marks) => marks.map((mark) => {
    const { left, right } = mark.getBoundingClientRect();
    return { left, right };
  }));
  const of = result!.layouts[0]!;
  const whole = rest[rest.length - 1]!.right - first!.left;
  [of.memory!.stateBytes, of.memory!.keptBytes, of.memory!.runningBytes, of.memory!.logitBytes, of.memory!.otherBytes].forEach((bytes, part) => {
    const { left, right } = [first!, ...rest][part]!;
    expect(Math.abs((right - left) / whole - bytes / of.memoryBytes)).toBeLessThan(0.005);
    if (part > 0) expect(Math.abs(left - [first!, ...rest][part - 1]!.right)).toBeLessThan(0.5);
  });
  // Another question is of other layouts.
  await page.getByLabel(/^Global batch/).fill("64");
  await page.getByLabel(/^Global batch/).press("Enter");
  await expect(page.getByRole("region", { name: /^Layout 1: TP / })).toHaveCount(0);
});

test("a layout leads to no other model's layer while its own is awaited", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address()}`);
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ }).first()).toBeVisible();
  const go = await hold(page, "ImportModel");
  await modelText(page).fill(JSON.stringify({ ...small, intermediate_size: 4096 }));
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByText("Ranking layouts …")).toBeHidden();
  await expect(ranking(page).locator("tbody tr").first()).toBeVisible();
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ })).toHaveCount(0);
  await go();
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ }).first()).toHaveAttribute("href", /hiddenDim%22%3A4096/);
});

test("a layer whose cluster is not known yet has no plan to lead to", async ({ page, planner }) => {
  const go = await hold(page, "GetLinks");
  await page.goto(`${planner.url}${address()}`);
  await expect(ranking(page).locator("tbody tr").first()).toBeVisible();
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ })).toHaveCount(0);
  await go();
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ }).first()).toBeVisible();
});

test("a ranking is called off, and asked for again", async ({ page, planner }) => {
  const failed: string[] = [];
  page.on("requestfailed", (request) => failed.push(request.url()));
  const go = await hold(page, "RankLayouts");
  await page.goto(`${planner.url}${address()}`);
  await expect(page.getByText("Ranking layouts …")).toBeVisible();
  await page.getByRole("button", { name: "Cancel" }).press("Enter");
  await expect(page.getByText("Cancelled.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  await expect.poll(() => failed.filter((url) => url.endsWith("/RankLayouts")).length).toBe(1);
  await expectAccessible(page);
  await go();
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(ranking(page)).toBeVisible();
  await expect(page.getByText("Cancelled.")).toHaveCount(0);
});

test("a layout's MoE layer opens in the other views", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address()}`);
  const plan = ranking(page).getByRole("link", { name: /^Plan its MoE layer/ }).first();
  await expect(plan).toBeVisible();
  const params = new URLSearchParams((await plan.getAttribute("href"))!.split("?")[1]);
  const workload = JSON.parse(params.get("workload")!) as { layer: { sequenceLength: number; experts: number }; phase: string };
  expect(workload).toMatchObject({ layer: { sequenceLength: 1024, experts: 8 }, phase: "TRAINING" });
  // The planner takes it.
  await planner.call("PlannerService/Plan", { workload, profileName: "west", extrapolate: true, top: 1 });
  await ranking(page).getByRole("link", { name: /^What if/ }).first().click();
  await expect(page.getByRole("heading", { level: 1, name: "What-if" })).toBeVisible();
  await expect(page.getByText(/^Swept \d+ points/)).toBeVisible();
});

test("the example is ranked over more GPUs than the profile has, in nodes like its own", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/layouts`);
  await paste(page, "");
  await page.getByRole("button", { name: /^Example/ }).click();
  await page.getByLabel(/^Global batch/).fill("256");
  await page.getByLabel("GPUs").fill("64");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(ranking(page)).toBeVisible({ timeout: 30_000 });
  await expect(ranking(page).getByText("extrapolated", { exact: true }).first()).toBeVisible();
  await ranking(page).getByRole("button", { name: "memory" }).click();
  await expect(page).toHaveURL(/sort=memory/);
  const href = await ranking(page).getByRole("link", { name: /^What if/ }).first().getAttribute("href");
  expect(new URLSearchParams(href!.split("?")[1]).get("axis1")).toBe("cluster.nodes=16");
  // Nothing but that sweep prices a layer over nodes that the profile does not have: its time leads there, and on to curves.
  await expect(ranking(page).getByRole("link", { name: /^Plan its MoE layer/ })).toHaveCount(0);
  const time = ranking(page).locator("tbody tr").first().locator("td:nth-child(17) a");
  await expect(time).toHaveAttribute("href", /^#\/what-if\?.*axis1=cluster.nodes/);
  await time.click();
  await page.getByText("As a table").click();
  await page.getByRole("region", { name: /^Points of the sweep/ }).locator("tbody tr").first().getByRole("link").first().click();
  const point = page.getByRole("region", { name: "Point 1", exact: true });
  await expect(point).toContainText("cluster.nodes");
  // Under the profile's own cluster its layout is refused.
  await expect(point.getByRole("link", { name: /^Plan of its workload/ })).toHaveCount(0);
  await point.locator(".priced-from a").first().click();
  await expect(page.locator("#curve-title")).toBeVisible();
});

test("a model that fits nowhere is told how much is missing", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ model: JSON.stringify(mixtral) })}`);
  await expect(page.getByRole("heading", { name: "No layout fits" })).toBeVisible();
  await expect(page.getByText(/the smallest needs [\d.]+ GiB more than the 37.3 GiB/)).toBeVisible();
  await expectAccessible(page);
});

test("what is refused is said at its field", async ({ page, planner }) => {
  await page.goto(`${planner.url}#/layouts`);
  const model = modelText(page);
  await paste(page, "");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(model).toHaveAttribute("aria-invalid", "true");
  await model.fill("{");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByText(/^Not JSON/)).toBeVisible();

  // Without its hidden size, which the planner misses.
  await model.fill('{"model_type": "mixtral"}');
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await expect(model).toHaveAttribute("aria-invalid", "true");
  await expectAccessible(page);

  await page.goto(`${planner.url}${address({ gpus: "-1" })}`);
  await expect(page.getByRole("alert")).toContainText("gpus");
  await expect(page.getByLabel("GPUs")).toHaveAttribute("aria-invalid", "true");

  await page.goto(`${planner.url}${address({ profile: "nobody" })}`);
  await expect(page.getByRole("alert")).toContainText("nobody");
});

test("a hostile model is text, and what was seen stays while the planner is away", async ({ page, planner }) => {
  await page.goto(`${planner.url}${address({ model: JSON.stringify({ ...small, model_type: hostileName }) })}`);
  await expect(modelText(page)).toHaveValue(new RegExp("<img src=x"));
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  await page.goto(`${planner.url}${address()}`);
  // The hostile model may have been ranked, too: what is to stay is the answer to this question.
  await expect(modelText(page)).not.toHaveValue(/<img/);
  await expect(page.locator(".old-answer")).toHaveCount(0);
  await expect(ranking(page)).toBeVisible();
  await planner.stop("SIGKILL");
  await page.getByRole("button", { name: "Rank layouts" }).click();
  await expect(page.getByText(/does not answer since/)).toBeVisible();
  await expect(ranking(page)).toBeVisible();
  await planner.restart();
  // The layouts are ranked again first.
  await expect(page.getByText(/does not answer since/)).toBeHidden({ timeout: 20_000 });
});

test("a narrow page and a dark one hold it all", async ({ page, planner }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(`${planner.url}${address({ layout: "1" })}`);
  await expect(ranking(page)).toBeVisible();
  // Words have room beside what they are of.
  const widths = await page.getByRole("region", { name: /^Layout 1: TP / }).locator("dd").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
  expect(Math.min(...widths)).toBeGreaterThan(150);
  await expectFits(page);
  await expectAccessible(page);
});
