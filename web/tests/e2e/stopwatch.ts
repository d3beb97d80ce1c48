// Times as who looks at the page has them: up to the end of the frame that shows what came of an input.
import type { Browser, Page } from "@playwright/test";

export interface Timed {
  wholeMs: number;
  /** Of it, what came after the planner's answer had arrived; null: it takes none. */
  ownMs: number | null;
  /** How long that answer took; null likewise. */
  answerMs: number | null;
}

/** The last of the planner's methods that it takes, such as "GetCurve"; null: none. */
export type Method = string | null;

/** How long anything may take before it is given up. */
export const patienceMs = 20_000;

interface Watch {
  /** Done once all of these are there ... */
  selectors: readonly string[];
  /** ... and, counted from an event of this type, the first of them is another than before. null: counted from the navigation. */
  eventType: string | null;
  method: Method;
  patienceMs: number;
}

/** Runs in the page. */
function watch({ selectors, eventType, method, patienceMs: patience }: Watch): void {
  const look = (): string | null => {
    const found = selectors.map((selector) => document.querySelector(selector));
    return found.every((element) => element !== null) ? found[0]!.outerHTML : null;
  };
  const before = eventType === null ? null : look();
  performance.clearResourceTimings();
  performance.setResourceTimingBufferSize(10_000);
  const answers = (): PerformanceResourceTiming[] =>
    (performance.getEntriesByType("resource") as PerformanceResourceTiming[]).filter(({ name }) => name.endsWith(`/${method}`)).sort((a, b) => a.responseEnd - b.responseEnd);
  const timed = new Promise<Timed>((done, failed) => {
    setTimeout(() => failed(new Error(`nothing came of it: ${eventType ?? "navigation"}, ${selectors.join(", ")}`)), patience);
    const begin = (startMs: number): void => {
      const next = (): void => {
        const now = look();
        const shown = now !== null && now !== before && (method === null || (answers().at(-1)?.responseEnd ?? 0) > startMs);
        if (!shown) return void requestAnimationFrame(next);
        // A timer's turn comes once this frame is painted.
        setTimeout(() => {
          const endMs = performance.now();
          const last = answers().at(-1);
          done({ wholeMs: endMs - startMs, ownMs: last === undefined ? null : endMs - last.responseEnd, answerMs: last === undefined ? null : last.duration });
        });
      };
      requestAnimationFrame(next);
    };
    if (eventType === null) begin(0);
    else addEventListener(eventType, ({ timeStamp }) => begin(timeStamp), { capture: true, once: true });
  });
  timed.catch(() => undefined);
  Object.assign(window, { timed });
}

const told = (page: Page): Promise<Timed> => page.evaluate(() => (window as unknown as { timed: Promise<Timed> }).timed);

/** From the start of a navigation, with nothing cached, until all `selectors` are there and painted. */
export async function firstView(browser: Browser, url: string, selectors: readonly string[], method: Method): Promise<Timed> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.addInitScript(watch, { selectors, eventType: null, method, patienceMs });
  await page.goto(url, { waitUntil: "commit" });
  const timed = await told(page);
  await context.close();
  return timed;
}

export interface Interaction {
  eventType: string;
  /** What changes. */
  shown: string;
  method?: Method;
  act: () => Promise<unknown>;
}

/** From the next event of that type until `shown` is another than before, and painted. */
export async function interaction(page: Page, { eventType, shown, method = null, act }: Interaction): Promise<Timed> {
  await page.evaluate(watch, { selectors: [shown], eventType, method, patienceMs });
  await act();
  return told(page);
}
