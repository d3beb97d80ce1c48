import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { CallError, currentConnection, currentTokenState, onConnection, onTokenState, type TokenState } from "./client";

export interface Loaded<Answer> {
  /** The last answer; stays while the next one is awaited, and when it fails. */
  data: Answer | null;
  /** Whether that is of another key than now. */
  isOld: boolean;
  error: CallError | null;
  loading: boolean;
  reload: () => void;
  /** Calls off what is on its way, at the planner, too; what was there before stays. */
  cancel: () => void;
  cancelled: boolean;
}

/** How long to wait before asking again a planner that does not answer. */
export const retryMs = 2000;

/**
 * Loads with `load` now, whenever `key` changes, every `everyMs` (0: never), and once the planner is back; not while nobody
 * looks, nor until a token is given where one lacks. `key` null: nothing to load. What is on its way when `key` changes, or when the component goes, is called off.
 */
export function useLoaded<Answer>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<Answer>,
  everyMs = 0,
): Loaded<Answer> {
  const [state, setState] = useState<{ key: string | null; data: Answer | null; error: CallError | null; loading: boolean; cancelled: boolean }>({
    key: null,
    data: null,
    error: null,
    loading: key !== null,
    cancelled: false,
  });
  const [round, setRound] = useState(0);
  const loadRef = useRef(load);
  loadRef.current = load;
  const running = useRef<AbortController | null>(null);

  // Not useEffect, which asks a frame later.
  useLayoutEffect(() => {
    if (key === null) {
      setState({ key, data: null, error: null, loading: false, cancelled: false });
      return undefined;
    }
    const controller = new AbortController();
    running.current = controller;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number): void => {
      const next = (): void => setRound((value) => value + 1);
      timer = setTimeout(() => {
        if (!document.hidden) next();
        else document.addEventListener("visibilitychange", next, { once: true, signal: controller.signal });
      }, ms);
    };
    setState((before) => ({ ...before, loading: true, cancelled: false }));
    loadRef.current(controller.signal).then(
      (data) => {
        if (controller.signal.aborted) return;
        setState({ key, data, error: null, loading: false, cancelled: false });
        if (everyMs > 0) again(everyMs);
      },
      (problem: unknown) => {
        if (controller.signal.aborted) return;
        const error = problem instanceof CallError ? problem : new CallError(String(problem), "UNKNOWN");
        // What belonged to another question must not stand under this one.
        setState((before) => ({ key, data: before.key === key ? before.data : null, error, loading: false, cancelled: false }));
        const away = error.code === "UNREACHABLE" || error.code === "UNAVAILABLE";
        const refused = error.code === "UNAUTHENTICATED";
        if (away || (everyMs > 0 && !refused)) again(away ? retryMs : everyMs);
      },
    );
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [key, round, everyMs]);

  const cancel = (): void => {
    running.current?.abort();
    setState((before) => ({ ...before, loading: false, cancelled: true }));
  };
  const { data, error, loading, cancelled } = state;
  return { data, isOld: data !== null && state.key !== key, error, loading, cancelled, reload: () => setRound((value) => value + 1), cancel };
}

/** Whether the planner answers, as components may ask. */
export function useConnection(): { awaySince: number | null } {
  const [connection, setConnection] = useState(currentConnection());
  useEffect(() => onConnection(() => setConnection(currentConnection())), []);
  return connection;
}

/** What is known of tokens, as components may ask. */
export function useTokenState(): TokenState {
  const [state, setState] = useState(currentTokenState());
  useEffect(() => onTokenState(() => setState(currentTokenState())), []);
  return state;
}
