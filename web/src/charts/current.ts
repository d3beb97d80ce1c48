// The one item that several charts point at together. What draws it listens for itself, so that a moving pointer draws a mark
// anew and not the charts.
import { useEffect, useState } from "preact/hooks";

export interface Current {
  index: number;
  /** What pointed at it: the name of a chart, or "keys". */
  by: string;
}

export class CurrentItem {
  private value: Current | null = null;
  private readonly listeners = new Set<() => void>();

  get(): Current | null {
    return this.value;
  }

  set(value: Current | null): void {
    if (value?.index === this.value?.index && value?.by === this.value?.by) return;
    this.value = value;
    this.listeners.forEach((listener) => listener());
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function useCurrent(item: CurrentItem): Current | null {
  const [value, setValue] = useState(item.get());
  useEffect(() => {
    setValue(item.get());
    return item.listen(() => setValue(item.get()));
  }, [item]);
  return value;
}
