// Calls of the planner's methods over its HTTP/JSON port, and what is known of its being there.

/** An error that the planner answered, or that kept it from answering. */
export class CallError extends Error {
  constructor(
    message: string,
    /** gRPC's name, such as "NOT_FOUND"; "UNREACHABLE": nobody answered. */
    readonly code: string,
    /** The field that is wrong, as the request spells it; empty: none. */
    readonly field = "",
    readonly found = "",
    readonly expected = "",
  ) {
    super(message);
  }
}

/** Whether the planner answers: since when it does not, in ms since 1970. */
export interface Connection {
  awaySince: number | null;
}

type Listener = () => void;

const tokenKey = "moeplan.token";
const connectionListeners = new Set<Listener>();
const tokenListeners = new Set<Listener>();
let connection: Connection = { awaySince: null };
let tokenWanted = false;

export const currentConnection = (): Connection => connection;
export const isTokenWanted = (): boolean => tokenWanted;

function listen(listeners: Set<Listener>, listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
export const onConnection = (listener: Listener): (() => void) => listen(connectionListeners, listener);
export const onTokenWanted = (listener: Listener): (() => void) => listen(tokenListeners, listener);

function setAway(away: boolean): void {
  if (away === (connection.awaySince !== null)) return;
  connection = { awaySince: away ? Date.now() : null };
  connectionListeners.forEach((listener) => listener());
}

/** How often the planner is asked whether it is there, beside what views ask. */
export const probeMs = 3000;

/** Asks now and then until the returned function is called; not while nobody looks. */
export function watchConnection(): () => void {
  const timer = setInterval(() => {
    if (document.hidden) return;
    fetch("/healthz", { cache: "no-store" }).then(
      (response) => setAway(!response.ok),
      () => setAway(true),
    );
  }, probeMs);
  return () => clearInterval(timer);
}

function setTokenWanted(wanted: boolean): void {
  if (tokenWanted === wanted) return;
  tokenWanted = wanted;
  tokenListeners.forEach((listener) => listener());
}

/** Keeps the token for as long as the browser's tab lives. */
export function useToken(token: string): void {
  if (token === "") sessionStorage.removeItem(tokenKey);
  else sessionStorage.setItem(tokenKey, token);
  setTokenWanted(false);
}
export const hasToken = (): boolean => sessionStorage.getItem(tokenKey) !== null;

interface ErrorBody {
  code?: string;
  message?: string;
  field?: string;
  found?: string;
  expected?: string;
}

async function errorOf(response: Response): Promise<CallError> {
  let body: ErrorBody = {};
  try {
    body = (await response.json()) as ErrorBody;
  } catch {
    // A proxy between us and the planner answers what it likes.
  }
  const code = body.code ?? `HTTP ${response.status}`;
  return new CallError(body.message ?? response.statusText, code, body.field, body.found, body.expected);
}

/**
 * Calls a method such as "ProfileService/ListProfiles". Throws CallError; an AbortError when `signal` says so.
 */
export async function call<Answer>(method: string, request: unknown, signal?: AbortSignal): Promise<Answer> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(tokenKey);
  if (token !== null) headers["Authorization"] = `Bearer ${token}`;
  let response: Response;
  try {
    response = await fetch(`/moeplan.v1.${method}`, {
      method: "POST",
      headers,
      body: JSON.stringify(request),
      cache: "no-store",
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
    setAway(true);
    throw new CallError("The planner does not answer.", "UNREACHABLE");
  }
  if (!response.ok) {
    const error = await errorOf(response);
    setAway(error.code === "UNAVAILABLE");
    if (error.code === "UNAUTHENTICATED") setTokenWanted(true);
    throw error;
  }
  setAway(false);
  return (await response.json()) as Answer;
}

/** All pages of a listing, up to `most` items. */
export async function callAll<Item, Answer extends { nextPageToken: string }>(
  method: string,
  request: object,
  itemsOf: (answer: Answer) => Item[],
  most: number,
  signal?: AbortSignal,
): Promise<Item[]> {
  const items: Item[] = [];
  let pageToken = "";
  do {
    const answer: Answer = await call(method, { ...request, pageSize: Math.min(1000, most - items.length), pageToken }, signal);
    items.push(...itemsOf(answer));
    pageToken = answer.nextPageToken;
  } while (pageToken !== "" && items.length < most);
  return items;
}
