// What the tests of the Plan view share.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Locator, Page } from "@playwright/test";

import type { Plan, PlanResponse } from "../../generated/moeplan/v1/plan";
import type { ExplainPlanResponse } from "../../generated/moeplan/v1/planner_service";
import { hrefOf } from "../../src/route";
import { expect, workloads } from "./fixtures";
import { type Planner, root } from "./planner";

export const workload = workloads[1] as { name: string; layer: Record<string, number> };
export const example = (name: string): string => readFileSync(join(root, "deploy/examples", name), "utf8");

export const addressOf = (planner: Planner, params: Record<string, string | number> = {}): string =>
  `${planner.url}${hrefOf("plan", { profile: "west", workload: JSON.stringify(workload), ...params })}`;
export const answerOf = (planner: Planner, changes: object = {}): Promise<PlanResponse> =>
  planner.call<PlanResponse>("PlannerService/Plan", { workload, profileName: "west", ...changes });
export const explainedOf = (planner: Planner, plan: Plan | undefined, of: unknown = workload): Promise<ExplainPlanResponse> =>
  planner.call<ExplainPlanResponse>("PlannerService/ExplainPlan", { workload: of, profileName: "west", plan });
export const section = (page: Page, name: string): Locator => page.getByRole("region", { name, exact: true });
export const answered = (page: Page): Promise<void> => expect(section(page, "Candidates")).toBeVisible();
export const field = (page: Page, name: string): Locator => page.locator(`[data-field="${name}"]`);
export const workloadIn = (page: Page): Record<string, unknown> =>
  JSON.parse(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("workload") ?? "{}") as Record<string, unknown>;
