// What is shown is in the address behind '#': "#/VIEW?KEY=VALUE&...". It never reaches a server, so it has no limit of
// ours, and a link to it shows the same again.
import { useEffect, useState } from "preact/hooks";

export const views = ["job", "clusters", "curves", "plan", "what-if", "dispatchers", "layouts", "accuracy"] as const;
/** What an address without a view opens. */
export const firstView = views[0];
export type View = (typeof views)[number];
export type Params = Readonly<Record<string, string>>;

// Every view is drawn from the parameters of its address alone.
export interface ViewProps {
  params: Params;
}

export interface Route {
  view: View;
  params: Params;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const view = views.find((name) => name === path) ?? firstView;
  return { view, params: Object.fromEntries(new URLSearchParams(query)) };
}

type Changes = Readonly<Record<string, string | number | undefined>>;

/** Leaves out what is undefined or empty. */
export function hrefOf(view: View, params: Changes = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return text === "" ? `#/${view}` : `#/${view}?${text}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = (): void => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** The address now, with some of the view's parameters changed; undefined or empty takes one away. */
export function hrefWith(changes: Changes): string {
  const { view, params } = parseRoute(location.hash);
  return hrefOf(view, { ...params, ...changes });
}

/** Goes to what hrefWith says. `replace`: without an entry in the history. */
export function setParams(changes: Changes, replace = false): void {
  const href = hrefWith(changes);
  if (href === location.hash) return;
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  // At once, where one of the browser's own comes a turn later.
  dispatchEvent(new HashChangeEvent("hashchange"));
}
