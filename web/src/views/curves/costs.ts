// The costs of a profile by their names, as messages have them: "ALL_TO_ALL groupSize 16 ranksPerNode 8". Pure.

export interface CostGroup {
  operation: string;
  costs: { cost: string; shape: string }[];
}

/** By operation, in the order in which they come. A name's first word is its operation, the rest its shape. */
export function costGroups(costs: readonly string[], filter: string): CostGroup[] {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const groups = new Map<string, CostGroup>();
  for (const cost of costs) {
    const lower = cost.toLowerCase();
    if (!words.every((word) => lower.includes(word))) continue;
    const [, operation = cost, shape = ""] = /^(\S+)\s*(.*)$/.exec(cost) ?? [];
    const group = groups.get(operation) ?? { operation, costs: [] };
    groups.set(operation, group);
    // What tells two costs apart stands last, and the list is narrow.
    group.costs.push({ cost, shape: shape === "" ? operation : shape.replace("contention WITH_", "beside ") });
  }
  return [...groups.values()];
}

/** A parameter of the address as a request has a number: what is none is the planner's to refuse. */
export function numberOf(param: string | undefined): number | string | undefined {
  if (param === undefined || param === "") return undefined;
  const value = Number(param);
  return Number.isFinite(value) ? value : param;
}
