// What outlives the page, where the browser lets us keep anything: one that blocks storage throws at every use of it, and
// then the page's own memory has to do.

export interface Kept {
  get: (key: string) => string | null;
  /** null takes it away. */
  set: (key: string, value: string | null) => void;
}

/** `storage` is asked each time, since even naming it may throw. */
export function keptIn(storage: () => Storage): Kept {
  const memory = new Map<string, string>();
  return {
    get: (key) => {
      try {
        return memory.get(key) ?? storage().getItem(key);
      } catch {
        return memory.get(key) ?? null;
      }
    },
    set: (key, value) => {
      memory.delete(key);
      try {
        if (value === null) storage().removeItem(key);
        else storage().setItem(key, value);
      } catch {
        if (value !== null) memory.set(key, value);
      }
    },
  };
}

export const ofBrowser = keptIn(() => localStorage);
export const ofTab = keptIn(() => sessionStorage);
