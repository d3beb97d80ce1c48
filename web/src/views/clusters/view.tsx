import type { ViewProps } from "../../app";

export function ClustersView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
