// Calls of the planner's methods over its HTTP/JSON port, and what is known of its being there.
import { ofTab } from "../storage";

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

/** What stands between the planner and a token. */
export interface TokenState {
  /** The dialog is to ask for one. */
  wanted: boolean;
  /** Calls are refused for lack of a good one. */
  refused: boolean;
  /** How many were given: whoever asked before has to ask again. */
  given: number;
}

type Listener = () => void;

const tokenKey = "moeplan.token";
const connectionListeners = new Set<Listener>();
const tokenListeners = new Set<Listener>();
let connection: Connection = { awaySince: null };
let tokenState: TokenState = { wanted: false, refused: false, given: 0 };
/** How often the dialog was left without a token. */
let timesLeft = 0;

export const currentConnection = (): Connection => connection;
export const currentTokenState = (): TokenState => tokenState;

function listen(listeners: Set<Listener>, listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
export const onConnection = (listener: Listener): (() => void) => listen(connectionListeners, listener);
export const onTokenState = (listener: Listener): (() => void) => listen(tokenListeners, listener);

function setAway(away: boolean): void {
  if (away === (connection.awaySince !== null)) return;
  connection = { awaySince: away ? Date.now() : null };
  connectionListeners.forEach((listener) => listener());
}

/** How often the planner is asked whether it is there, beside what views ask, and how long it may take to say so. */
export const probeMs = 3000;
/** How long a call may take. */
export const callMs = 65_000;

/** Asks now and then until the returned function is called; not while nobody looks, and never twice at a time. */
export function watchConnection(): () => void {
  let asking = false;
  const ask = async (): Promise<void> => {
    if (document.hidden || asking) return;
    asking = true;
    try {
      const { ok } = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(probeMs) });
      setAway(!ok);
    } catch {
      setAway(true);
    }
    asking = false;
  };
  const timer = setInterval(() => void ask(), probeMs);
  return () => clearInterval(timer);
}

function setTokenState(changes: Partial<TokenState>): void {
  const next = { ...tokenState, ...changes };
  if (next.wanted === tokenState.wanted && next.refused === tokenState.refused && next.given === tokenState.given) return;
  tokenState = next;
  tokenListeners.forEach((listener) => listener());
}

/** Opens the dialog, or closes it without a token. */
export function wantToken(wanted: boolean): void {
  if (!wanted && tokenState.wanted) ++timesLeft;
  setTokenState({ wanted });
}

/** Keeps the token for as long as the browser's tab lives. Empty: none. */
export function useToken(token: string): void {
  ofTab.set(tokenKey, token === "" ? null : token);
  setTokenState({ wanted: false, refused: false, given: tokenState.given + 1 });
}
const tokenNow = (): string | null => ofTab.get(tokenKey);
export const hasToken = (): boolean => tokenNow() !== null;

interface ErrorBody {
  code?: string;
  message?: string;
  field?: string;
  found?: string;
  expected?: string;
}

/** Nobody answers, or somebody else in the planner's place. */
const unreachable = (message = "The planner does not answer."): CallError => new CallError(message, "UNREACHABLE");

/** What a proxy says of a planner that it cannot reach. */
const proxyStatuses: readonly number[] = [502, 503, 504];

function errorOf(status: number, statusText: string, body: ErrorBody | null): CallError {
  if (typeof body?.code !== "string" && proxyStatuses.includes(status)) return unreachable(`The planner does not answer, says a proxy: HTTP ${status}.`);
  const message = body?.message ?? (statusText === "" ? `HTTP ${status}` : statusText);
  return new CallError(message, body?.code ?? `HTTP ${status}`, body?.field, body?.found, body?.expected);
}

/** Null: it is cut, or not JSON. Throws where the call was called off. */
async function objectOf(response: Response): Promise<object | null> {
  try {
    const body: unknown = await response.json();
    return typeof body === "object" ? body : null;
  } catch (problem) {
    if (problem instanceof DOMException) throw problem;
    return null;
  }
}

async function post(method: string, request: unknown, token: string | null, signal: AbortSignal): Promise<[Response, object | null]> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token !== null) headers["Authorization"] = `Bearer ${token}`;
  const response = await fetch(`/moeplan.v1.${method}`, { method: "POST", headers, body: JSON.stringify(request), cache: "no-store", signal });
  return [response, await objectOf(response)];
}

/**
 * Calls a method such as "ProfileService/ListProfiles". Throws CallError; an AbortError when `signal` says so.
 */
export async function call<Answer>(method: string, request: unknown, signal?: AbortSignal): Promise<Answer> {
  const token = tokenNow();
  const timesLeftBefore = timesLeft;
  const limit = AbortSignal.timeout(callMs);
  let response: Response;
  let body: object | null;
  try {
    [response, body] = await post(method, request, token, signal === undefined ? limit : AbortSignal.any([signal, limit]));
  } catch (problem) {
    if (signal?.aborted) throw problem;
    setAway(true);
    throw unreachable(limit.aborted ? `The planner did not answer within ${callMs / 1000} s.` : undefined);
  }
  if (!response.ok) {
    const error = errorOf(response.status, response.statusText, body);
    setAway(error.code === "UNAVAILABLE" || error.code === "UNREACHABLE");
    // One that was given meanwhile is not the one that was refused, and whoever left the dialog meanwhile has answered it.
    if (error.code === "UNAUTHENTICATED" && token === tokenNow()) {
      setTokenState({ wanted: tokenState.wanted || timesLeft === timesLeftBefore, refused: true });
    }
    throw error;
  }
  if (body === null) {
    setAway(true);
    throw unreachable("The planner does not answer: what came in its place cannot be read.");
  }
  setAway(false);
  setTokenState({ refused: false });
  return body as Answer;
}

/** All pages of a listing, up to `most` items. Whole pages always: some listings take away from a page what was not asked for. */
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
    const answer: Answer = await call(method, { ...request, pageSize: Math.min(1000, most), pageToken }, signal);
    items.push(...itemsOf(answer));
    pageToken = answer.nextPageToken;
  } while (pageToken !== "" && items.length < most);
  return items.slice(0, most);
}
