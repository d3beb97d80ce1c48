import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

import type { CallError } from "../api/client";

/** What went wrong, as an alert. */
export function ErrorNote({ message, error }: { message?: string; error?: CallError }) {
  return (
    <div class="note error" role="alert">
      <p>{message ?? error?.message}</p>
      {error !== undefined && error.field !== "" && (
        <p class="muted">
          <code>{error.field}</code>: found {error.found === "" ? "nothing" : <code>{error.found}</code>}, expected {error.expected}
        </p>
      )}
    </div>
  );
}

/** Nothing is there yet, and what to do about it. */
export function EmptyNote({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="note empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

export function WarningList({ warnings }: { warnings: readonly string[] }) {
  if (warnings.length === 0) return null;
  return (
    <details class="note warning">
      <summary>{warnings.length === 1 ? "1 warning" : `${warnings.length} warnings`}</summary>
      <ul>{warnings.map((warning) => <li key={warning}>{warning}</li>)}</ul>
    </details>
  );
}

/** A command to be typed, with a button that copies it. */
export function Command({ text }: { text: string }) {
  const code = useRef<HTMLElement>(null);
  const [said, setSaid] = useState("");
  const select = (): void => {
    if (code.current !== null) getSelection()?.selectAllChildren(code.current);
    setSaid("Selected; copy it by keyboard.");
  };
  const copy = (): void => {
    // Browsers have no clipboard for pages that came over plain HTTP from another machine.
    if (navigator.clipboard === undefined) return select();
    navigator.clipboard.writeText(text).then(() => setSaid("Copied."), select);
  };
  return (
    <div class="command">
      <pre tabIndex={0}><code ref={code}>{text}</code></pre>
      <button type="button" class="quiet" onClick={copy}>Copy</button>
      <span role="status" class="muted">{said}</span>
    </div>
  );
}
