import type { ViewProps } from "../../app";

export function PlanView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
