// Makes the pictures of docs/images from a planner over a simulated cluster: `npm run screenshots`.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { clusterFile, expect, test, workloads } from "./fixtures";
import { moeplan, type Planner, root, temporaryFolder } from "./planner";

const images = join(root, "docs/images");
const others = join(root, "web/.cache/screenshots");
const example = (name: string): string => join(root, "deploy/examples", name);
const compact = (file: string): string => JSON.stringify(JSON.parse(readFileSync(file, "utf8")));

/** Plans of the example grid, run on the simulated cluster and reported. */
function reportRuns(planner: Planner): void {
  const folder = temporaryFolder();
  for (const workload of workloads) {
    const file = join(folder.path, "workload.json");
    const plan = join(folder.path, "plan.json");
    writeFileSync(file, JSON.stringify(workload));
    writeFileSync(plan, moeplan("plan", "--planner", planner.grpcAddress, "--profile-name", "west", "--workload", file, "--json"));
    moeplan("run", "--plan", plan, "--simulated", clusterFile, "--planner", planner.grpcAddress, "--json");
  }
  folder.remove();
}

test("pictures", async ({ page, planner }) => {
  test.setTimeout(300_000);
  reportRuns(planner);
  const workload = JSON.stringify(workloads[1]);
  const job = { modelName: "qwen3-30b-a3b", gpus: "64", globalBatch: "512", sequenceLength: "4096" };
  const layout = '{"expertParallel":16,"recompute":"SELECTIVE","recomputeModules":["MOE_ACT"]}';
  const shots: readonly [string, string][] = [
    ["job", `#/job?${new URLSearchParams({ ...job, hardware: "h100-sxm:8x8", to: "megatron" }).toString()}`],
    ["clusters", "#/clusters?profile=west"],
    ["curves", "#/curves?profile=west"],
    ["plan", `#/plan?${new URLSearchParams({ profile: "west", workload }).toString()}`],
    ["what-if", `#/what-if?${new URLSearchParams({ profile: "west", workload, axis1: "layer.sequenceLength=256,512,1024,2048,4096", axis2: "layer.batch=1,2,4,8" }).toString()}`],
    ["dispatchers", `#/dispatchers?${new URLSearchParams({ ...job, hardware: "h100-sxm", layout, axis: "expertParallel=4,8,16,32,64" }).toString()}`],
    ["layouts", `#/layouts?${new URLSearchParams({ profile: "west", model: compact(example("mixtral-8x7b.config.json")), gpus: "64", zeroStage: "1", globalBatch: "64", sequenceLength: "4096" }).toString()}`],
    ["accuracy", "#/accuracy?profile=west"],
  ];
  for (const [name, address] of shots) {
    for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 400]] as const) {
      await page.emulateMedia({ colorScheme: theme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto("about:blank");
      await page.goto(`${planner.url}${address}`);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await page.waitForLoadState("networkidle");
      const suffix = width === 400 ? "-narrow" : theme === "dark" ? "-dark" : "";
      // The docs show the top of a page in the light; the rest is there to be looked at.
      const height = await page.evaluate(() => document.documentElement.scrollHeight);
      const clip = { x: 0, y: 0, width, height: suffix === "" ? Math.min(height, 1400) : height };
      await page.screenshot({ path: join(suffix === "" ? images : others, `${name}${suffix}.png`), fullPage: true, clip });
    }
  }
});
