import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** What is drawn once it is opened; usually what a chart shows, as a table. */
export function AsTable({ summary = "As a table", children }: { summary?: string; children: () => ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open && children()}
    </details>
  );
}
