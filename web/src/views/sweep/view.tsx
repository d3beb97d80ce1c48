import type { ViewProps } from "../../app";

export function SweepView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
