import type { ViewProps } from "../../app";

export function LayoutsView(_: ViewProps) {
  return <p>Not here yet.</p>;
}
