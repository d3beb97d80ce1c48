// What to set for a job, as a real planner advises it.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import type { AdviseResponse } from "../../generated/moeplan/v1/planner_service";
import * as text from "../../src/format";
import { hrefOf } from "../../src/route";
import { flagsText } from "../../src/views/job/flags";
import { gainWords, runnerUpWords } from "../../src/views/job/words";
import { expect, expectAccessible, expectFits, hold, hostileName, test } from "./fixtures";
import { root } from "./planner";

const mixtral = JSON.parse(readFileSync(join(root, "deploy/examples/mixtral-8x7b.config.json"), "utf8")) as Record<string, unknown>;
/** One that a few GPUs hold, so that it is answered soon. */
const small = JSON.stringify({ ...mixtral, hidden_size: 1024, intermediate_size: 2048, num_hidden_layers: 8, num_attention_heads: 16, num_key_value_heads: 8 });
const job = { model: small, hardware: "h100-sxm:1x8", gpus: "8", globalBatch: "32", sequenceLength: "1024", to: "megatron" };

const answered = (page: Page) => page.getByRole("region", { name: "The answer" });
/** Counts calls of a method from now on. */
const callsOf = (page: Page, method: string): (() => number) => {
  let calls = 0;
  page.on("request", (request) => { calls += Number(request.url().endsWith(`/${method}`)); });
  return () => calls;
};

test("the example is answered by one click and not before, and the address shows it again", async ({ page, emptyPlanner }) => {
  const asked = callsOf(page, "Advise");
  await page.goto(emptyPlanner.url);
  await expect(page.getByRole("combobox", { name: "Model", exact: true })).toHaveValue("qwen3-30b-a3b");
  await expect(page.getByLabel("Training system").locator("option")).not.toHaveCount(1);
  expect(asked()).toBe(0);
  const response = page.waitForResponse(/\/Advise$/);
  await page.getByRole("button", { name: "Ask" }).click();
  const { result, deviceMemoryBytes } = (await (await response).json()) as AdviseResponse;
  await expect(answered(page)).toContainText(`Take ${result!.text}: a step takes ${text.seconds(result!.step!.stepTimeS)}`);
  await expect(answered(page)).toContainText(gainWords(result!));
  await expect(answered(page)).toContainText(runnerUpWords(result!));
  await expect(answered(page).locator(".reasons li")).toHaveText(result!.reasons);
  await expect(page.getByRole("img", { name: new RegExp(`^Memory of one GPU: the answer ${text.bytes(result!.step!.memoryBytes)}`) })).toBeVisible();
  await expect(page.getByText(`limit ${text.bytes(deviceMemoryBytes)}`)).toBeVisible();
  const step = page.getByRole("img", { name: /^Time of a training step: the answer/ });
  // The bar of the answer is as long as its parts together, beside that of the usual default.
  const parts = result!.step!.parts.filter(({ exposedS }) => exposedS > 0);
  const lengths = await step.locator("g g").first().locator(".bar-mark").evaluateAll((marks) => marks.map((mark) => mark.getBoundingClientRect().width));
  const whole = lengths.reduce((sum, length) => sum + length, 0);
  const shares = lengths.filter((length) => length > 0).map((length) => length / whole).sort();
  expect(shares).toHaveLength(parts.length);
  parts.map(({ exposedS }) => exposedS / result!.step!.stepTimeS).sort().forEach((share, index) => expect(Math.abs(shares[index]! - share)).toBeLessThan(0.01));
  for (const figure of await page.getByText("As a table").all()) await figure.click();
  await expect(page.getByRole("region", { name: /^The step by how much longer/ }).getByRole("row", { name: /^together/ })).toContainText(text.seconds(result!.step!.stepTimeS));
  await expect(page.locator(".settings pre").filter({ hasText: flagsText(result!.export!.layoutArguments).split("\n")[0]! })).toHaveText(flagsText(result!.export!.layoutArguments));
  await expectAccessible(page);

  await page.setViewportSize({ width: 400, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await expectFits(page);
  await page.reload();
  await expect(answered(page)).toContainText(`Take ${result!.text}`);
  await expectAccessible(page);
});

test("what runs now is compared with, and what its software takes is told apart", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}${hrefOf("job", job)}`);
  await expect(answered(page)).toContainText("The usual default");
  await page.getByLabel(/^My flags/).fill('{"expertParallel": 2, "tensorParallel": 4}');
  await page.getByLabel("Measured step (s)").fill("5");
  const response = page.waitForResponse(/\/Advise$/);
  await page.getByRole("button", { name: "Ask" }).click();
  const { result } = (await (await response).json()) as AdviseResponse;
  expect(result!.softwareFactor).toBeCloseTo(5 / result!.mine!.step!.stepTimeS, 6);
  await expect(answered(page)).toContainText(`so expect ${text.seconds(result!.expectedStepTimeS)}`);
  await expect(answered(page)).toContainText(/Yours (takes|is)/);
  await expect(page.getByRole("img", { name: /^Memory of one GPU: the answer .*, yours / })).toBeVisible();
});

test("an answer is called off, and asked for again", async ({ page, emptyPlanner }) => {
  const go = await hold(page, "Advise");
  await page.goto(`${emptyPlanner.url}${hrefOf("job", job)}`);
  await expect(page.getByText(/^Looking for what to set/)).toBeVisible();
  await page.getByRole("button", { name: "Cancel" }).press("Enter");
  await expect(page.getByText("Cancelled.")).toBeVisible();
  await go();
  await page.getByRole("button", { name: "Ask" }).click();
  await expect(answered(page)).toBeVisible();
  await expect(page.getByText("Cancelled.")).toHaveCount(0);
});

test("what is refused is said at its field", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}${hrefOf("job", { ...job, hardware: "h100-sxm:1x9" })}`);
  await expect(page.getByRole("alert")).toContainText("hardware");
  await expect(page.getByLabel(/^NVLink domains/)).toHaveAttribute("aria-invalid", "true");
  await expectAccessible(page);
  await page.getByLabel(/^NVLink domains/).fill("1x8");
  await page.getByLabel(/^My flags/).fill("--expert-model-parallel-sise 8");
  await page.getByRole("button", { name: "Ask" }).click();
  await expect(page.getByLabel(/^My flags/)).toHaveAttribute("aria-invalid", "true");
  await expect(page.getByLabel(/^NVLink domains/)).not.toHaveAttribute("aria-invalid");
  await page.getByLabel(/^Model:/).fill("{");
  await page.getByRole("button", { name: "Ask" }).click();
  await expect(page.getByText(/^Not JSON/)).toBeVisible();
  // Names of the address are text.
  await page.goto(`${emptyPlanner.url}${hrefOf("job", { ...job, model: undefined, modelName: hostileName })}`);
  await expect(page.getByRole("alert")).toContainText(hostileName);
  await expect(page.getByRole("combobox", { name: /^Model/ })).toHaveAttribute("aria-invalid", "true");
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
});

test("an answer from a profile leads to its curves, to the dispatchers and to all layouts of the same job", async ({ page, planner }) => {
  await page.goto(`${planner.url}${hrefOf("job", { ...job, hardware: "", profile: "west" })}`);
  await expect(page.getByRole("link", { name: "west version 2" })).toHaveAttribute("href", "#/curves?profile=west&version=2");
  await expect(page.locator(".priced-from a").first()).toHaveAttribute("href", /^#\/curves\?profile=west&version=2&cost=/);
  await page.getByRole("link", { name: /^Which dispatcher/ }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Dispatchers" })).toBeVisible();
  await expect(page.getByRole("region", { name: /^Step time with each dispatcher/ })).toBeVisible();
  await page.goBack();
  await page.getByRole("link", { name: "All layouts, ranked" }).click();
  await expect(page.getByRole("region", { name: /^Layouts, fastest first/ })).toBeVisible();
});
