import type { ViewProps } from "../../app";

export function AccuracyView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
