import { ErrorNote } from "../components/notes";
import type { Params } from "../route";
import { versionOf, versionProblem } from "../version";
import { namesModel } from "./question";

interface Props {
  params: Params;
  /** Whether it asks something. */
  asks: boolean;
  /** What else than its version keeps it from asking. */
  problem: string;
}

/** Why an address that names a model asks nothing. */
export function AddressNote({ params, asks, problem }: Props) {
  if (versionOf(params["version"]) === null) return <ErrorNote message={versionProblem(params["version"]!)} />;
  if (!asks && namesModel(params)) return <ErrorNote message={`The address asks nothing: ${problem}.`} />;
  return null;
}
