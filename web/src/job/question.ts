// What is trained and on which GPUs: as forms hold it, as addresses keep it, and as requests say it. Pure.
import type { Network } from "../../generated/moeplan/v1/cluster";
import type { Params } from "../route";
import { versionOf } from "../version";
import { parseObject } from "../workload";
import { compact, indented, parseModel } from "./model";

/** What a form holds of a job, as it is typed. */
export interface JobDraft {
  /** Empty: `model` counts. */
  modelName: string;
  /** A config.json. */
  model: string;
  /** A name without its suffix. Empty: none. */
  hardware: string;
  /** The suffix, such as "8x8": NVLink domains by the GPUs of each. Empty: none. */
  domains: string;
  /** What joins the domains, as JSON. Empty: one switch at full rate. */
  network: string;
  profile: string;
  version: string;
  gpus: string;
  globalBatch: string;
  sequenceLength: string;
}

/** What a form begins with. */
export const exampleJob: JobDraft = {
  modelName: "qwen3-30b-a3b",
  model: "",
  hardware: "h100-sxm",
  domains: "8x8",
  network: "",
  profile: "",
  version: "",
  gpus: "64",
  globalBatch: "512",
  sequenceLength: "4096",
};

/** "h100-sxm:8x8" in its two parts. */
export function hardwareOf(text: string): Pick<JobDraft, "hardware" | "domains"> {
  const at = text.indexOf(":");
  return at < 0 ? { hardware: text, domains: "" } : { hardware: text.slice(0, at), domains: text.slice(at + 1) };
}

/** The other way round. */
export function hardwareText({ hardware, domains }: Pick<JobDraft, "hardware" | "domains">): string {
  return hardware === "" || domains.trim() === "" ? hardware : `${hardware}:${domains.trim()}`;
}

/** How many GPUs a suffix comes to. null: it is no suffix. */
export function gpusOf(domains: string): number | null {
  const match = /^\s*([1-9]\d*)x([1-9]\d*)\s*$/.exec(domains);
  return match === null ? null : Number(match[1]) * Number(match[2]);
}

/** A draft with another suffix: GPUs that were those of the suffix go with it. */
export function withDomains(draft: JobDraft, domains: string): Partial<JobDraft> {
  const before = gpusOf(draft.domains);
  const after = gpusOf(domains);
  return after !== null && (before === null || draft.gpus === String(before)) ? { domains, gpus: String(after) } : { domains };
}

/** Whether an address names a model: one that does not asks nothing. */
export const namesModel = (params: Params): boolean => (params["modelName"] ?? "") !== "" || (params["model"] ?? "") !== "";

/** The job of an address; of one that names no model, the example with what the address does say. */
export function jobOf(params: Params): JobDraft {
  const said = (name: string): string => params[name] ?? "";
  const job = {
    modelName: said("modelName"),
    model: indented(said("model")),
    ...hardwareOf(said("hardware")),
    network: said("network"),
    profile: said("profile"),
    version: said("version"),
    gpus: said("gpus"),
    globalBatch: said("globalBatch"),
    sequenceLength: said("sequenceLength"),
  };
  if (namesModel(params)) return job;
  const machines = job.hardware === "" && job.profile === "" ? hardwareOf(hardwareText(exampleJob)) : {};
  return {
    ...job,
    ...machines,
    modelName: exampleJob.modelName,
    gpus: params["gpus"] ?? exampleJob.gpus,
    globalBatch: params["globalBatch"] ?? exampleJob.globalBatch,
    sequenceLength: params["sequenceLength"] ?? exampleJob.sequenceLength,
  };
}

/** The address of a job. */
export function jobParams(draft: JobDraft): Record<string, string> {
  return {
    modelName: draft.modelName,
    model: draft.modelName === "" ? compact(draft.model) : "",
    hardware: hardwareText(draft),
    network: draft.hardware === "" ? "" : compact(draft.network),
    profile: draft.profile,
    version: draft.version,
    gpus: draft.gpus,
    globalBatch: draft.globalBatch,
    sequenceLength: draft.sequenceLength,
  };
}

/** The network as requests have it; empty text: none is said. What stands in it is the planner's to judge. */
function parseNetwork(json: string): { network: Network | undefined } | { problem: string } {
  if (json.trim() === "") return { network: undefined };
  const parsed = parseObject(json, "A network");
  return "problem" in parsed ? parsed : { network: parsed.value as unknown as Network };
}

/** What of a draft is no JSON, by input. */
export function jobProblems({ modelName, model, hardware, network }: JobDraft): Partial<Record<keyof JobDraft, string>> {
  const problems: Partial<Record<keyof JobDraft, string>> = {};
  const ofModel = modelName === "" ? parseModel(model) : null;
  const ofNetwork = hardware === "" ? null : parseNetwork(network);
  if (ofModel !== null && "problem" in ofModel) problems.model = ofModel.problem;
  if (ofNetwork !== null && "problem" in ofNetwork) problems.network = ofNetwork.problem;
  return problems;
}

/** What requests say of a job, by the names that their messages share. */
export interface JobRequest {
  model: Record<string, unknown> | undefined;
  modelName: string;
  profileName: string;
  profileVersion?: number;
  hardware: string;
  network: Network | undefined;
  gpus: number;
  globalBatch: number;
  sequenceLength: number;
}

/** null: the address names no model, or a model or a network that is no JSON object, or what is no version. */
export function jobRequest(params: Params): JobRequest | null {
  if (!namesModel(params)) return null;
  const job = jobOf(params);
  const version = versionOf(job.version);
  const parsed = job.modelName === "" ? parseModel(job.model) : { model: undefined };
  // Without hardware there is nothing that a network could join, and no input for it.
  const joined = job.hardware === "" ? { network: undefined } : parseNetwork(job.network);
  if (version === null || "problem" in parsed || "problem" in joined) return null;
  return {
    model: parsed.model,
    modelName: job.modelName,
    profileName: job.profile,
    ...(version === undefined ? {} : { profileVersion: version }),
    hardware: hardwareText(job),
    network: joined.network,
    gpus: Number(job.gpus),
    globalBatch: Number(job.globalBatch),
    sequenceLength: Number(job.sequenceLength),
  };
}

/** Inputs of a job by what requests call them. */
export const jobInputs = {
  model: "model",
  modelName: "modelName",
  hardware: "hardware",
  network: "network",
  gpus: "gpus",
  globalBatch: "globalBatch",
  sequenceLength: "sequenceLength",
} as const satisfies Readonly<Record<string, keyof JobDraft>>;
