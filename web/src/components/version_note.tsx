import { CallError } from "../api/client";
import { versionOf } from "../version";
import { ErrorNote } from "./notes";

/** What is wrong with a version of the address, as the planner would say it; null: nothing. */
export const versionError = (field: string, param: string | undefined): CallError | null =>
  versionOf(param) === null
    ? new CallError("The address names no version.", "INVALID_ARGUMENT", field, JSON.stringify(param), "a whole number of at least 1")
    : null;

export function VersionNote({ field, param }: { field: string; param: string | undefined }) {
  const error = versionError(field, param);
  return error === null ? null : <ErrorNote error={error} />;
}
