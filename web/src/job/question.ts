// What is trained and on which GPUs: as forms hold it, as addresses keep it, and as requests say it. Pure.
import type { Network } from "../../generated/moeplan/v1/cluster";
import type { Params } from "../route";
import { versionOf } from "../version";
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
    profile: draft.profile,
    version: draft.version,
    gpus: draft.gpus,
    globalBatch: draft.globalBatch,
    sequenceLength: draft.sequenceLength,
  };
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

/** null: the address names no model, or none that could be asked about, or no version. */
export function jobRequest(params: Params): JobRequest | null {
  if (!namesModel(params)) return null;
  const job = jobOf(params);
  const version = versionOf(job.version);
  const parsed = job.modelName === "" ? parseModel(job.model) : { model: undefined };
  if (version === null || "problem" in parsed) return null;
  return {
    model: parsed.model,
    modelName: job.modelName,
    profileName: job.profile,
    ...(version === undefined ? {} : { profileVersion: version }),
    hardware: hardwareText(job),
    network: undefined,
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
  gpus: "gpus",
  globalBatch: "globalBatch",
  sequenceLength: "sequenceLength",
} as const satisfies Readonly<Record<string, keyof JobDraft>>;
