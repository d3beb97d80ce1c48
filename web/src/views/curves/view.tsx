import type { ViewProps } from "../../app";

export function CurvesView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
