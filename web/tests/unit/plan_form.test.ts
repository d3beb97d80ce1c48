import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import { example } from "../../src/views/plan/example";
import { fields } from "../../src/views/plan/fields";
import { fieldOfError, importedWorkload, problemOf, textsOf, valueAt, withLayerOf, withValue, workloadOf } from "../../src/views/plan/workload_form";
import type { WorkloadJson } from "../../src/workload";

const examples = ["workload", "workload-gradients", "mixtral-layer", "mixtral-across-nodes", "workload-ctas"].map(
  (name) => [name, JSON.parse(readFileSync(new URL(`../../../deploy/examples/${name}.json`, import.meta.url), "utf8")) as WorkloadJson] as const,
);
const field = (path: string) => fields.find((one) => one.path === path)!;

/** Every field of the messages that a workload is made of, from the contract itself. */
function pathsOfProto(): string[] {
  const proto = readFileSync(new URL("../../../proto/moeplan/v1/workload.proto", import.meta.url), "utf8");
  const fieldsOf = (message: string): string[] => {
    const body = new RegExp(`^message ${message} \\{\\n([\\s\\S]*?)\\n\\}`, "m").exec(proto)![1]!;
    return [...body.matchAll(/^ {2}(?:optional |repeated )?[\w.]+ (\w+) = \d+;/gm)].map((match) => match[1]!.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()));
  };
  const inner = ["layer", "layout", "routing", "router"];
  const pathsOf = (message: string, prefix: string): string[] =>
    fieldsOf(message).flatMap((name) => (inner.includes(name) ? pathsOf(name[0]!.toUpperCase() + name.slice(1), `${prefix}${name}.`) : [prefix + name]));
  return pathsOf("Workload", "");
}

describe("form of a workload", () => {
  it("has a field for each one of the contract", () => {
    expect(fields.map(({ path }) => path).sort()).toEqual(pathsOfProto().sort());
  });

  it.each(examples)("changes nothing by itself: %s", (_, workload) => {
    expect(workloadOf(workload, textsOf(workload))).toEqual(workload);
  });

  it.each(examples)("makes of nothing what it shows: %s", (_, workload) => {
    // Defaults that are written out go; everything else is made anew from the texts alone.
    const made = workloadOf({}, textsOf(workload));
    for (const { path } of fields) {
      const wanted = valueAt(workload, path);
      if (valueAt(made, path) !== undefined) expect(valueAt(made, path)).toEqual(wanted);
    }
    expect(valueAt(made, "layer.batch")).toBe(valueAt(workload, "layer.batch"));
  });

  it("sets, takes away and keeps what it does not know", () => {
    const base: WorkloadJson = { layer: { batch: 1, strange: [1] }, layout: { tensorParallel: 2 } };
    const texts = { ...textsOf(base), "layer.batch": "4", "layout.tensorParallel": "", phase: "BACKWARD", "routing.tokensPerExpert": "1, 2 3" };
    expect(workloadOf(base, texts)).toEqual({ layer: { batch: 4, strange: [1] }, phase: "BACKWARD", routing: { tokensPerExpert: [1, 2, 3] } });
  });

  it("checks only what is wrong on the face of it", () => {
    expect(problemOf(field("layer.batch"), "")).toBe("needed");
    expect(problemOf(field("layer.batch"), "x")).toBe("not a number");
    expect(problemOf(field("layer.batch"), "1.5")).toBe("not a whole number");
    expect(problemOf(field("layer.batch"), "-7")).toBe("");
    expect(problemOf(field("layer.capacityFactor"), "1.25")).toBe("");
    expect(problemOf(field("layout.tensorParallel"), "")).toBe("");
    expect(problemOf(field("routing.tokensPerExpert"), "1, b")).toBe("b is not a number");
  });

  it("finds the field that an error names", () => {
    expect(fieldOfError("workload.layer.batch")).toBe("layer.batch");
    expect(fieldOfError("layer.topK")).toBe("layer.topK");
    expect(fieldOfError("routing.tokensPerExpert[3]")).toBe("routing.tokensPerExpert");
    expect(fieldOfError("workload.layer.nope")).toBe("");
    expect(fieldOfError("")).toBe("");
  });

  it("does not walk into what objects inherit", () => {
    expect(valueAt({}, "constructor.name")).toBeUndefined();
    expect(withValue(JSON.parse('{"__proto__":{"a":1}}') as WorkloadJson, "name", "x")["name"]).toBe("x");
  });

  it("says of a dense model that there is nothing to take", () => {
    expect(importedWorkload({ layers: 16 })).toEqual({ problem: "This model is dense: none of its 16 layers has experts." });
    expect(importedWorkload({ workload: { name: "mixtral" }, layers: 32 })).toEqual({ workload: { name: "mixtral" } });
  });

  it("takes the layer of a model and leaves how it runs", () => {
    const imported: WorkloadJson = { name: "mixtral", layer: { batch: 1, experts: 8 } };
    const result = withLayerOf({ ...example, routing: { skew: 1 } }, imported);
    expect(result["layer"]).toEqual({ batch: 1, experts: 8 });
    expect(result["layout"]).toEqual(example["layout"]);
    expect(result["name"]).toBe("mixtral");
    expect(result["routing"]).toBeUndefined();
  });
});
