// Which dispatcher is the fastest, and where that changes, as a real planner prices it.
import type { Page } from "@playwright/test";

import type { CompareDispatchersResponse } from "../../generated/moeplan/v1/planner_service";
import { hrefOf } from "../../src/route";
import { crossoverWords, pointWords } from "../../src/views/dispatchers/words";
import { expect, expectAccessible, expectFits, test } from "./fixtures";

const job = { modelName: "qwen3-30b-a3b", hardware: "h100-sxm", gpus: "64", globalBatch: "512", sequenceLength: "4096", layout: '{"expertParallel":16,"recompute":"FULL"}' };
const table = (page: Page) => page.getByRole("region", { name: /^Step time with each dispatcher/ });
const answerOf = async (page: Page, act: () => Promise<unknown>): Promise<CompareDispatchersResponse> => {
  const response = page.waitForResponse(/\/CompareDispatchers$/);
  await act();
  return (await (await response).json()) as CompareDispatchersResponse;
};

test("the example is compared by one click, read by keyboard, and the address shows it again", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}#/dispatchers`);
  await expect(page.getByRole("combobox", { name: "Model", exact: true })).toHaveValue("qwen3-30b-a3b");
  const { result } = await answerOf(page, () => page.getByRole("button", { name: "Compare" }).click());
  for (const words of crossoverWords(result!)) await expect(page.getByRole("region", { name: "The answer" })).toContainText(words);
  await expect(table(page).locator("tbody tr")).toHaveCount(5);
  await expect(table(page).locator("tbody strong")).toHaveCount(5);
  const chart = page.getByRole("application", { name: /^Step by ranks of experts/ });
  await expect(chart.locator(".series-best")).toHaveCount(5);
  await chart.focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.locator(".told")).toHaveText(`ranks of experts 8: ${pointWords(result!.points[1]!)}`);
  await expectAccessible(page);

  await page.setViewportSize({ width: 400, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await expectFits(page);
  await page.reload();
  await expect(table(page).locator("tbody tr")).toHaveCount(5);
  await expect(page.getByLabel("GPUs", { exact: true })).toHaveValue("64");
  await expectAccessible(page);
});

test("every flip is said, and why a dispatcher has no price", async ({ page, emptyPlanner }) => {
  const skewed = await answerOf(page, () => page.goto(`${emptyPlanner.url}${hrefOf("dispatchers", { ...job, axis: "expertImbalance=1,1.5,2,3,6" })}`));
  expect(skewed.result!.flips.length).toBeGreaterThan(0);
  for (const words of crossoverWords(skewed.result!)) await expect(page.getByRole("region", { name: "The answer" })).toContainText(words);

  const large = await answerOf(page, () => page.goto(`${emptyPlanner.url}${hrefOf("dispatchers", { ...job, layout: '{"expertParallel":16}', axis: "microBatch=1,8" })}`));
  const unpriced = large.result!.points.find(({ steps }) => steps.some(({ stepTimeS }) => stepTimeS === undefined))!;
  await expect(table(page).locator("tbody tr").nth(large.result!.points.indexOf(unpriced))).toContainText(unpriced.steps.find(({ stepTimeS }) => stepTimeS === undefined)!.reason);
});

test("what is refused is said at its field", async ({ page, emptyPlanner }) => {
  await page.goto(`${emptyPlanner.url}${hrefOf("dispatchers", { ...job, axis: "expertParallel=8,4" })}`);
  await expect(page.getByRole("alert")).toContainText("expertParallel");
  await expect(page.getByLabel(/^Values/)).toHaveAttribute("aria-invalid", "true");
  await expectAccessible(page);
  await page.getByLabel("Along").selectOption("microBatch");
  await expect(page.getByLabel(/^Values/)).toHaveValue("1,2,4,8");
  await page.getByLabel(/^Layout/).fill("{");
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page.getByText(/^Not JSON/)).toBeVisible();
  await page.getByLabel(/^Layout/).fill('{"microBash": 1}');
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page.getByLabel(/^Layout/)).toHaveAttribute("aria-invalid", "true");
});
