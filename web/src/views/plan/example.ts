// The workload that the quick start plans.
import text from "../../../../deploy/examples/workload.json?raw";

import type { WorkloadJson } from "../../workload";

export const example = JSON.parse(text) as WorkloadJson;
