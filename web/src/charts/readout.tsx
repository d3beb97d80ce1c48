// What charts share that are read by pointer and by keyboard: a box that takes the keys, and the place that is told of.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Readout<At> {
  /** What is told of: where the pointer is, else where the keys are. They stay when the box is left: what is told may hold links. */
  shown: At | null;
  pointed: At | null;
  cursor: At | null;
  setPointed: (at: At | null) => void;
  setCursor: (at: At | null) => void;
  /** By key: a pointer that rests on the chart no longer counts. */
  walkTo: (at: At) => void;
}

/** Places that `exists` denies, such as those of the data before, are none. */
export function useReadout<At>(exists: (at: At) => boolean): Readout<At> {
  const [cursor, setCursor] = useState<At | null>(null);
  const [pointed, setPointed] = useState<At | null>(null);
  const there = (at: At | null): At | null => (at !== null && exists(at) ? at : null);
  const walkTo = (at: At): void => {
    setPointed(null);
    setCursor(at);
  };
  return { shown: there(pointed) ?? there(cursor), pointed: there(pointed), cursor: there(cursor), setPointed, setCursor, walkTo };
}

interface Props {
  class: string;
  /** What kind of chart it is, in words. */
  kind: string;
  /** What it shows, in one sentence. */
  summary: string;
  /** The id of what is told. */
  told: string;
  onKeyDown: (event: KeyboardEvent) => void;
  onFocus: () => void;
  children: ComponentChildren;
}

export function KeyBox({ class: name, kind, summary, told, onKeyDown, onFocus, children }: Props) {
  const keyDown = (event: KeyboardEvent): void => {
    if (!event.altKey && !event.ctrlKey && !event.metaKey) onKeyDown(event);
  };
  return (
    <div class={name} role="application" aria-roledescription={kind} aria-label={summary} aria-describedby={told} tabIndex={0} onKeyDown={keyDown} onFocus={onFocus}>
      {children}
    </div>
  );
}
