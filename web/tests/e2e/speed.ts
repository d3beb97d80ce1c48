// How fast the dashboard is over a database of 100 profiles and 100,000 samples: `npm run speed`.
//
// The first view counts from the start of the navigation, with nothing cached, to the frame that shows the list of clusters and
// one of them in full. An interaction counts from the input event to the end of the frame that shows what came of it; where that takes an answer
// of the planner, the answer's time is part of it. Medians are held against the aims; the largest are printed beside them, as
// machines stutter. MOEPLAN_SPEED_DB: a database to make once and to keep. MOEPLAN_SPEED_URL: a dashboard that is there already.
import { existsSync } from "node:fs";
import { join } from "node:path";

import { chromium, expect, test, type Browser, type Page } from "@playwright/test";

import { hostileName } from "./fixtures";
import { Planner, temporaryFolder } from "./planner";

const repetitions = 11;
const firstViewAimMs = 1000;
const interactionAimMs = 100;
const profiles = 100;
const samplesOfMost = 960;
/** So that all have 100,000 together; most of these are of one cost. */
const samplesOfLarge = 100_000 - (profiles - 1) * samplesOfMost;
const largeProfile = "profile-000";
const samplesOfRequest = 1000;

const collectives = ["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER", "ALL_REDUCE"] as const;
const groupSizes = [2, 4, 8, 16, 32] as const;
const costsOfProfile = collectives.length * groupSizes.length;

interface Measured {
  what: string;
  needsAnswer: boolean;
  aimMs: number;
  timesMs: number[];
}

const nameOf = (profile: number): string => (profile === 42 ? hostileName : `profile-${String(profile).padStart(3, "0")}`);

/** The same in every run: a generator that only needs to look noisy. */
function noise(seed: number): number {
  const value = Math.sin(seed * 12.9898) * 43758.5453;
  return value - Math.floor(value) - 0.5;
}

function sampleOf(profile: number, index: number, cost: number): object {
  const groupSize = groupSizes[cost % groupSizes.length]!;
  const bytes = 2 ** (10 + (index % 20));
  const timeS = (2e-5 + (bytes / 2e10) * (1 + (profile % 7) / 10)) * (1 + cost / 40);
  return {
    collective: collectives[Math.floor(cost / groupSizes.length)]!,
    groupSize,
    ranksPerNode: Math.min(8, groupSize),
    bytes,
    timeS: [0, 1, 2].map((repeat) => timeS * (1 + 0.06 * noise(profile * 7919 + index * 3 + repeat))),
    provenance: { hostname: `host-${index % 4}.example`, backend: "cuda", device: "NVIDIA H100", takenAt: "2026-01-01T00:00:00Z" },
  };
}

async function fill(planner: Planner): Promise<void> {
  for (let profile = 0; profile < profiles; ++profile) {
    const name = nameOf(profile);
    const total = name === largeProfile ? samplesOfLarge : samplesOfMost;
    const samples = Array.from({ length: total }, (_, index) =>
      sampleOf(profile, Math.floor(index / costsOfProfile), index < samplesOfMost ? index % costsOfProfile : 0));
    const cluster = { nodes: 4, gpusPerNode: 8, peakFlopsPerS: 9.9e14, deviceMemoryBytes: 8e10 };
    for (let from = 0; from < total; from += samplesOfRequest) {
      const request = { requestId: `speed ${profile} ${from}`, samples: { name, cluster, samples: samples.slice(from, from + samplesOfRequest) } };
      const last = from + samplesOfRequest >= total;
      await planner.call(last ? "ProfileService/PutSamples" : "ProfileService/AppendSamples", request);
    }
  }
}

/** From the start of the navigation until `selector` has been painted. */
async function firstView(browser: Browser, url: string, selector: string): Promise<number> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(url, { waitUntil: "commit" });
  const time = await page.evaluate(
    (wanted) =>
      new Promise<number>((shown) => {
        const look = (): void => {
          if (document.querySelector(wanted) === null) requestAnimationFrame(look);
          else setTimeout(() => shown(performance.now()));
        };
        requestAnimationFrame(look);
      }),
    selector,
  );
  await context.close();
  return time;
}

/** From the next event `type` until the text of `selector` is another, and painted. */
async function interaction(page: Page, type: string, selector: string, act: () => Promise<unknown>): Promise<number> {
  await page.evaluate(
    ([wantedType, wanted]) => {
      const textOf = (): string => document.querySelector(wanted!)?.textContent ?? "";
      const before = textOf();
      const measured = new Promise<number>((done) => {
        addEventListener(
          wantedType!,
          (event) => {
            const look = (): void => {
              if (textOf() === before) requestAnimationFrame(look);
              else setTimeout(() => done(performance.now() - event.timeStamp));
            };
            requestAnimationFrame(look);
          },
          { capture: true, once: true },
        );
      });
      (window as unknown as { measured: Promise<number> }).measured = measured;
    },
    [type, selector],
  );
  await act();
  return page.evaluate(() => (window as unknown as { measured: Promise<number> }).measured);
}

async function repeated(what: string, needsAnswer: boolean, once: (round: number) => Promise<number>): Promise<Measured> {
  const timesMs: number[] = [];
  for (let round = 0; round < repetitions; ++round) timesMs.push(await once(round));
  return { what, needsAnswer, aimMs: interactionAimMs, timesMs };
}

const settled = (page: Page): Promise<void> => page.waitForTimeout(150);

async function onClusters(page: Page, url: string): Promise<Measured[]> {
  await page.goto(`${url}#/clusters`);
  await expect(page.locator("article h2")).toBeVisible();
  const search = page.locator(".cluster-list input");
  const filtered = await repeated("Clusters: typing a letter into the filter", false, async (round) => {
    await search.fill("");
    await settled(page);
    await search.focus();
    return interaction(page, "input", ".cluster-list [role=status]", () => page.keyboard.press(String(round % 9 + 1)));
  });
  await search.fill("");
  const chosen = await repeated("Clusters: choosing another cluster", false, async (round) => {
    await settled(page);
    const link = page.locator(".cluster-list a").nth(round % 2 === 0 ? 3 : 4);
    return interaction(page, "click", "article h2", () => link.click());
  });
  return [filtered, chosen];
}

async function onCurves(page: Page, url: string): Promise<Measured[]> {
  await page.goto("about:blank");
  await page.goto(`${url}#/curves?profile=${largeProfile}`);
  const chart = page.locator(".sample-chart svg").first();
  await expect(chart).toBeVisible();
  await settled(page);
  const box = (await chart.boundingBox())!;
  const list = page.locator("select.cost-list");
  const search = page.getByLabel("Cost names contain");

  const measured = [
    await repeated("Curves: typing a letter into the costs' filter", false, async (round) => {
      await search.fill("");
      await settled(page);
      await search.focus();
      return interaction(page, "input", ".cost-list", () => page.keyboard.press("248"[round % 3]!));
    }),
  ];
  await search.fill("");
  await page.getByLabel(/Walk the samples/).focus();
  await page.keyboard.press("Home");
  measured.push(
    await repeated("Curves: the next sample by keyboard", false, async () => {
      await settled(page);
      return interaction(page, "input", ".readout", () => page.keyboard.press("ArrowRight"));
    }),
    await repeated("Curves: pointing at a sample", false, async (round) => {
      const mark = (await page.locator(".sample-chart .current circle").first().boundingBox());
      const at = { x: mark === null ? box.x + box.width / 2 : mark.x + 6, y: mark === null ? box.y + box.height / 2 : mark.y + 6 };
      await page.mouse.move(box.x + 10, box.y + box.height - 2);
      await settled(page);
      const time = await interaction(page, "pointermove", ".readout", () => page.mouse.move(at.x + 2, at.y + 2));
      // Further on for the next time.
      await page.getByLabel(/Walk the samples/).focus();
      for (let step = 0; step < 5 + round; ++step) await page.keyboard.press("ArrowRight");
      return time;
    }),
    await repeated("Curves: the next page of samples", false, async () => {
      await settled(page);
      return interaction(page, "click", "#samples-title ~ .table-scroll caption", () => page.getByRole("button", { name: "Next samples" }).click());
    }),
    await repeated(`Curves: another cost, one of ${samplesOfLarge.toLocaleString("en")} samples among them`, true, async (round) => {
      await settled(page);
      return interaction(page, "change", "#curve-title", () => list.selectOption({ index: round % 2 === 0 ? 1 : 0 }));
    }),
    await repeated("Curves: another cost, each of 48 samples", true, async (round) => {
      if (round === 0) {
        const other = (await list.locator("option").nth(1).getAttribute("value"))!;
        await list.selectOption(other);
        await expect(page.locator("#curve-title")).toHaveText(other);
      }
      await settled(page);
      return interaction(page, "change", "#curve-title", () => list.selectOption({ index: round % 2 === 0 ? 2 : 1 }));
    }),
    await repeated("Curves: comparing with another profile", true, async (round) => {
      await settled(page);
      return interaction(page, "change", "#compare-title", () => page.getByLabel("Compare with").selectOption(nameOf(round + 1)));
    }),
  );
  return measured;
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
const missed = ({ timesMs, aimMs }: Measured): boolean => median(timesMs) > aimMs;

function print(all: readonly Measured[]): void {
  const width = Math.max(...all.map(({ what }) => what.length));
  const row = (...cells: string[]): string => [cells[0]!.padEnd(width), ...cells.slice(1).map((cell) => cell.padStart(10))].join("  ");
  const lines = [`${repetitions} repetitions, ms`, row("", "median", "largest", "aim", "planner", "")];
  for (const measured of all) {
    const { what, needsAnswer, aimMs, timesMs } = measured;
    lines.push(row(what, median(timesMs).toFixed(0), Math.max(...timesMs).toFixed(0), String(aimMs), needsAnswer ? "asked" : "not asked", missed(measured) ? "MISSED" : "met"));
  }
  console.log(`\n${lines.join("\n")}\n`);
}

test("speed", async ({}, info) => {
  const folder = temporaryFolder();
  const kept = process.env["MOEPLAN_SPEED_DB"];
  const db = kept ?? join(folder.path, "speed.db");
  const there = process.env["MOEPLAN_SPEED_URL"];
  const full = existsSync(db);
  const planner = there === undefined ? await Planner.start(db, "--log-level", "warning") : null;
  const browser = await chromium.launch(info.project.use.launchOptions ?? {});
  try {
    if (planner !== null && !full) await fill(planner);
    const url = there ?? planner!.url;
    const first: Measured = { what: "First view: from navigation to the clusters", needsAnswer: true, aimMs: firstViewAimMs, timesMs: [] };
    for (let round = 0; round < repetitions; ++round) first.timesMs.push(await firstView(browser, url, ".clusters article h2"));
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const all = [first, ...(await onClusters(page, url)), ...(await onCurves(page, url))];
    print(all);
    expect(all.filter(missed).map(({ what }) => what)).toEqual([]);
  } finally {
    await browser.close();
    await planner?.stop();
    folder.remove();
  }
});
