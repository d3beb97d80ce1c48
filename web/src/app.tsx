import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { probeMs, wantToken, watchConnection } from "./api/client";
import { retryMs, useConnection, useTokenState } from "./api/use_call";
import { ErrorNote } from "./components/notes";
import { TokenDialog } from "./components/token_dialog";
import * as text from "./format";
import { firstView, hrefOf, useRoute, views, type View, type ViewProps } from "./route";
import { useTheme } from "./theme";

type ViewComponent = ComponentType<ViewProps>;

// Each view is a script of its own, so that the first one does not wait for the others.
const loaders: Record<View, () => Promise<ViewComponent>> = {
  job: async () => (await import("./views/job/view")).JobView,
  clusters: async () => (await import("./views/clusters/view")).ClustersView,
  curves: async () => (await import("./views/curves/view")).CurvesView,
  plan: async () => (await import("./views/plan/view")).PlanView,
  "what-if": async () => (await import("./views/sweep/view")).SweepView,
  dispatchers: async () => (await import("./views/dispatchers/view")).DispatchersView,
  layouts: async () => (await import("./views/layouts/view")).LayoutsView,
  accuracy: async () => (await import("./views/accuracy/view")).AccuracyView,
};

const titles: Record<View, string> = {
  job: "My job",
  clusters: "Clusters",
  curves: "Curves",
  plan: "Plan",
  "what-if": "What-if",
  dispatchers: "Dispatchers",
  layouts: "Layouts",
  accuracy: "Accuracy",
};

function useView(view: View): { Shown: ViewComponent | null; failed: boolean } {
  const [loaded, setLoaded] = useState<{ view: View; Shown: ViewComponent } | null>(null);
  const [failed, setFailed] = useState<View | null>(null);
  useEffect(() => {
    let wanted = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = (): void => void loaders[view]().then(
      (Shown) => wanted && setLoaded({ view, Shown }),
      () => {
        if (!wanted) return;
        setFailed(view);
        // From a planner that is away, which may come back.
        timer = setTimeout(load, retryMs);
      },
    );
    load();
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [view]);
  const Shown = loaded?.view === view ? loaded.Shown : null;
  return { Shown, failed: Shown === null && failed === view };
}

function AwayBanner() {
  const { awaySince } = useConnection();
  return (
    <div role="status" class="away-slot">
      {awaySince !== null && (
        <p class="away">
          The planner does not answer since {new Date(awaySince).toLocaleTimeString()}. What you see is from before; asking again
          every {text.seconds(probeMs / 1000)}.
        </p>
      )}
    </div>
  );
}

export function App() {
  const { view, params } = useRoute();
  const { Shown, failed } = useView(view);
  const [theme, nextTheme] = useTheme();
  const { wanted, refused, given } = useTokenState();

  useEffect(watchConnection, []);
  useEffect(() => {
    document.title = `${titles[view]} · moeplan`;
  }, [view]);

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href={hrefOf(firstView)}>moeplan</a>
        <nav aria-label="Views">
          <ul>
            {views.map((name) => (
              <li key={name}>
                <a href={hrefOf(name)} aria-current={name === view ? "page" : undefined}>{titles[name]}</a>
              </li>
            ))}
          </ul>
        </nav>
        {refused && <button type="button" class="quiet" onClick={() => wantToken(true)}>Give a token</button>}
        <button type="button" class="quiet" onClick={nextTheme}>Theme: {theme}</button>
      </header>
      <AwayBanner />
      <main id="main" tabIndex={-1}>
        <h1>{titles[view]}</h1>
        {failed && <ErrorNote message="This part of the dashboard could not be loaded; it comes by itself once the planner answers." />}
        {Shown !== null ? <Shown key={given} params={params} /> : !failed && <p class="muted" role="status">Loading …</p>}
      </main>
      {wanted && <TokenDialog />}
    </>
  );
}
