// What the view asks: its form, its place in the address, and the request. Pure.
import type { SweepRequest } from "../../../generated/moeplan/v1/planner_service";
import type { Params } from "../../route";
import { axisText, mostAxes, parseAxis, splitValues } from "../../sweep/axes";
import type { Grid } from "../../sweep/use_sweep";
import { versionOf } from "../../version";
import { parseWorkload } from "../../workload";

/** What the form holds, as it is typed. */
export interface Draft {
  workload: string;
  /** Always mostAxes of them; unused ones are empty. */
  axes: { path: string; values: string }[];
  profile: string;
  version: string;
  extrapolate: boolean;
}

const firstAxes = ["layer.sequenceLength=1024,2048,4096,8192", "layer.batch=1,2,4"];

export const axisKeys = ["axis1", "axis2", "axis3"] as const;

function axisTexts(params: Params): string[] {
  return axisKeys.map((key) => params[key] ?? "").filter((text) => text !== "");
}

/** Of an address without a question: `example` and axes to begin with. */
export function draftOf(params: Params, example: string): Draft {
  const texts = axisTexts(params);
  const axes = (texts.length > 0 ? texts : firstAxes).map((text) => {
    const { path, values } = parseAxis(text);
    return { path, values: values.join(",") };
  });
  while (axes.length < mostAxes) axes.push({ path: "", values: "" });
  return {
    workload: indented(params["workload"] ?? example),
    axes,
    profile: params["profile"] ?? "",
    version: params["version"] ?? "",
    extrapolate: params["extrapolate"] === "1",
  };
}

function indented(json: string): string {
  const parsed = parseWorkload(json);
  return "problem" in parsed ? json : JSON.stringify(parsed.workload, null, 2);
}

/** The address of a draft, unused axes left out; what belongs to the last answer is taken away. */
export function paramsOf(draft: Draft): Record<string, string | undefined> {
  const parsed = parseWorkload(draft.workload);
  const used = draft.axes.filter(({ path, values }) => path.trim() !== "" || values.trim() !== "");
  const texts = used.map(({ path, values }) => axisText({ path: path.trim(), values: splitValues(values) }));
  return {
    workload: "problem" in parsed ? draft.workload : JSON.stringify(parsed.workload),
    ...Object.fromEntries(axisKeys.map((key, index) => [key, texts[index]])),
    profile: draft.profile,
    version: draft.version,
    extrapolate: draft.extrapolate ? "1" : undefined,
    x: undefined,
    y: undefined,
    at: undefined,
    sort: undefined,
    point: undefined,
  };
}

/** Names the question of an address: what is shown of its answer is no part of it. */
export function askedOf(params: Readonly<Record<string, string | undefined>>): string {
  return JSON.stringify(["workload", ...axisKeys, "profile", "version", "extrapolate"].map((key) => params[key] ?? ""));
}

/** null: the address asks nothing that could be asked. */
export function questionOf(params: Params): Grid | null {
  const parsed = parseWorkload(params["workload"] ?? "");
  const texts = axisTexts(params);
  if ("problem" in parsed || texts.length === 0) return null;
  const version = versionOf(params["version"]);
  if (version === null) return null;
  return {
    axes: texts.map(parseAxis),
    request: {
      workload: parsed.workload as unknown as SweepRequest["workload"],
      profileName: params["profile"] ?? "",
      ...(version === undefined ? {} : { profileVersion: version }),
      axes: texts,
      extrapolate: params["extrapolate"] === "1",
    },
  };
}
