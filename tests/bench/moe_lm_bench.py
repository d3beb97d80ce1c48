#!/usr/bin/env python3
"""Trains python/examples/train_moe_lm.py on emulated nodes: plain PyTorch beside moeplan's plans, side by side in one run.

Usage: PYTHONPATH=BUILD/python moe_lm_bench.py BUILD/bin/moeplan [--nics MB_PER_S,...] [--cases tp1,tp2,cp,overlap]
       [--figure FILE.svg]

Four ranks on two emulated nodes, FP32, four micro-batches a step. For every NIC and tensor parallelism the cluster is
measured and the layer planned; plain PyTorch gets the exchange and the number of chunks that are fastest for it, by medians
of three runs of each; then runs of both alternate. Prints medians over the rounds, of the median step of each. Beside a
layer's predicted time stands that of the plan over that of the fastest schedule that plain PyTorch could run, in
moeplan's executor.

`cp` is context parallel 2 by expert parallel 2, in both orders, beside `moeplan step` of a model as near as it can say: in
BF16, with experts of three matrices.

`overlap` is the same job with the backward pass of each micro-batch beside the forward pass of the next, and without,
beside `moeplan step` of the same model.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples" / "train_moe_lm.py"
STEP = ("--accumulate", "4")
CASES = {"tp1": ("--tp", "1"), "tp2": ("--tp", "2")}
EXCHANGES = [(1, False), (1, True), (2, False), (2, True), (4, True)]
ORDERS = ("vertical", "horizontal")
# Plain PyTorch is predicted as the fastest of these with DIRECT all-to-alls, which exchange the same in as many chunks.
LIKE_PLAIN = ("BASELINE", "BASELINE_TP", "PIPELINE")


class Bench:
    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.options, self.folder = options, folder

    def moeplan(self, *arguments: object) -> str:
        command = [self.options.moeplan, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"moe_lm_bench: {' '.join(command)}\nended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def cluster(self, nic: float) -> pathlib.Path:
        file = self.folder / "emulated.json"
        file.write_text(json.dumps({"nodes": 2, "gpusPerNode": 2, "nic": {"bytesPerS": nic * 1e6}}))
        return file

    def printed(self, what: str, *options: str) -> pathlib.Path:
        file = self.folder / f"{what}.json"
        command = [sys.executable, "-B", EXAMPLE, *options, "--print", what]
        file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return file

    def plan(self, cluster: pathlib.Path, *options: str) -> pathlib.Path:
        database, grid = self.folder / "measured.db", self.printed("grid", *options)
        database.unlink(missing_ok=True)
        budget = f"{self.options.budget}s"
        self.moeplan("calibrate", "--emulated", cluster, "--db", database, "--layouts", grid, "--budget", budget)
        file = self.folder / "plan.json"
        file.write_text(self.moeplan("plan", "--db", database, "--workload", self.printed("workload", *options), "--json"))
        return file

    def train(self, cluster: pathlib.Path, *options: object, steps: int = 0) -> dict:
        """What the job recorded, with the median of its steps; the first is left out."""
        record = self.folder / "record.json"
        count = ("--steps", steps or self.options.steps, "--log", 1000, "--record", record)
        self.moeplan("launch", "--emulated", cluster, "--", sys.executable, "-B", EXAMPLE, *STEP, *options, *count)
        found = json.loads(record.read_text())
        return {
            "exchangeS": statistics.median(found["exchangeS"][1:]),
            "stepS": statistics.median(found["stepS"][1:]),
            "layerS": statistics.median(found["moeLayerS"][1:]),
            "predictedLayerS": found["predictedMoeLayerS"],
        }

    def alternated(self, cluster: pathlib.Path, runs: dict[str, tuple]) -> dict[str, dict]:
        found: dict[str, list[dict]] = {name: [] for name in runs}
        for _ in range(self.options.rounds):
            for name, options in runs.items():
                found[name].append(self.train(cluster, *options))
        return {
            name: {key: statistics.median(run[key] for run in of_it) for key in of_it[0]} for name, of_it in found.items()
        }

    def tensor_parallel(self, nic: float, case: str) -> dict:
        cluster, options = self.cluster(nic), CASES[case]
        plan = self.plan(cluster, *options)
        answer = json.loads(plan.read_text())
        plain: dict[tuple, list[float]] = {}
        for _ in range(3):
            for chunks, first in EXCHANGES:
                how = ("--plain-chunks", chunks, *(["--plain-receives-first"] if first else []))
                took = self.train(cluster, *options, "--layer", "plain", *how, steps=2)["stepS"]
                plain.setdefault(how, []).append(took)
        best = min(plain, key=lambda how: statistics.median(plain[how]))
        runs = {
            "plain": (*options, "--layer", "plain", *best),
            "planned": (*options, "--layer", "planned", "--plan", plan),
        }
        found = self.alternated(cluster, runs)
        like_plain = min(
            one["predictedTimeS"]
            for one in answer["candidates"]
            if one["schedule"] in LIKE_PLAIN and one["allToAll"] == "DIRECT" and one["dispatchCodec"] == "NONE"
        )
        chosen = answer["best"]
        return {
            "nicMBPerS": nic,
            "case": case,
            "plainS": found["plain"]["stepS"],
            "plannedS": found["planned"]["stepS"],
            "plainChunks": best[1],
            "plainReceivesFirst": len(best) > 2,
            "plan": f"{chosen['schedule']} {chosen['allToAll']} N={chosen['chunks']} r={chosen['partitionDegree']}",
            "layerS": found["planned"]["layerS"],
            "predictedLayerS": chosen["predictedTimeS"],
            "predictedOfLikePlain": chosen["predictedTimeS"] / like_plain,
        }

    def predicted(self, cluster: pathlib.Path, global_batch: int, both: list[dict]) -> float:
        """A step of the second of two layouts over one of the first."""
        database, model = self.folder / "measured.db", self.printed("model")
        database.unlink(missing_ok=True)
        budget = f"{self.options.budget}s"
        self.moeplan("calibrate", "--emulated", cluster, "--db", database, "--for", model, "--budget", budget)
        took = []
        for one in both:
            layout = {"microBatch": 8, "capacityFactor": 1.25, "schedule": "BASELINE", "zeroStage": 0, "attention": "STORED", **one}
            asked = ("--global-batch", global_batch, "--sequence-length", 128, "--layout", json.dumps(layout), "--json")
            took.append(json.loads(self.moeplan("step", "--db", database, "--model", model, "--gpus", 4, *asked)))
        return took[1]["stepTimeS"] / took[0]["stepTimeS"]

    def contexts(self, nic: float) -> dict:
        cluster = self.cluster(nic)
        orders = [{"expertParallel": 2, "contextParallel": 2, "horizontalContexts": order == "horizontal"} for order in ORDERS]
        predicted = self.predicted(cluster, 64, orders)
        runs = {order: ("--cp", 2, "--cp-order", order, "--layer", "baseline") for order in ORDERS}
        found = self.alternated(cluster, runs)
        return {"nicMBPerS": nic, "case": "cp", "predictedOrders": predicted, **{f"{order}S": found[order]["stepS"] for order in ORDERS}}

    def overlap(self, nic: float) -> dict:
        cluster = self.cluster(nic)
        predicted = self.predicted(cluster, 128, [{"expertParallel": 4, "overlapExpertParallel": on} for on in (False, True)])
        runs = {"inLine": ("--layer", "baseline"), "overlapped": ("--layer", "baseline", "--overlap")}
        found = self.alternated(cluster, runs)
        # The job records a layer's last micro-batch; it has two such layers, and a step has four micro-batches.
        share = 2 * 4 * found["inLine"]["exchangeS"] / found["inLine"]["stepS"]
        took = {f"{name}S": found[name]["stepS"] for name in runs}
        return {"nicMBPerS": nic, "case": "overlap", "exchangeShare": share, "predictedOverlap": predicted, **took}


def line(row: dict) -> str:
    if row["case"] == "overlap":
        in_line, overlapped = 1e3 * row["inLineS"], 1e3 * row["overlappedS"]
        return (
            f"{row['nicMBPerS']:5g} MB/s  two micro-batches at once {overlapped:6.0f} ms, in line {in_line:6.0f} ms, "
            f"{row['exchangeShare']:.0%} of it exchanges: {overlapped / in_line:.2f} ({row['predictedOverlap']:.2f} predicted)"
        )
    if row["case"] == "cp":
        vertical, horizontal = (1e3 * row[f"{order}S"] for order in ORDERS)
        return (
            f"{row['nicMBPerS']:5g} MB/s  CP 2 x EP 2  vertical {vertical:6.0f} ms, horizontal {horizontal:6.0f} ms "
            f"({horizontal / vertical:.2f}, {row['predictedOrders']:.2f} predicted)"
        )
    plain = f"{row['plainChunks']} chunk{'s' if row['plainChunks'] > 1 else ''}"
    plain += ", receives first" if row["plainReceivesFirst"] else ""
    return (
        f"{row['nicMBPerS']:5g} MB/s  TP {row['case'][2:]}  plain {1e3 * row['plainS']:6.0f} ms ({plain}), planned "
        f"{1e3 * row['plannedS']:6.0f} ms: {row['plannedS'] / row['plainS']:.2f}\n"
        f"             {row['plan']}; a layer {1e3 * row['layerS']:.1f} ms, {1e3 * row['predictedLayerS']:.1f} predicted, "
        f"{row['predictedOfLikePlain']:.2f} of plain's schedules in the executor"
    )


def figure(rows: list[dict]) -> str:
    """Bars of step times, a group for every NIC and case."""
    named = {"plainS": ("plain PyTorch, tuned", "#9aa5b1"), "plannedS": ("planned", "#2563eb")}
    named |= {"verticalS": ("CP beside EP (vertical)", "#0f766e"), "horizontalS": ("EP between (horizontal)", "#d97706")}
    groups = [(row, [(key, row[key]) for key in named if key in row]) for row in rows]
    height, base, wide, left = 220, 260, 34, 60
    most = max(value for _, bars in groups for _, value in bars)
    parts, x = [], left
    for row, bars in groups:
        for key, value in bars:
            high = height * value / most
            parts.append(f'<rect x="{x}" y="{base - high:.1f}" width="{wide - 4}" height="{high:.1f}" fill="{named[key][1]}"/>')
            parts.append(f'<text x="{x + wide / 2 - 2}" y="{base - high - 5:.1f}" text-anchor="middle">{1e3 * value:.0f}</text>')
            x += wide
        title = {"tp1": "TP 1", "tp2": "TP 2", "cp": "CP 2 × EP 2"}[row["case"]]
        middle = x - wide * len(bars) / 2
        parts.append(f'<text x="{middle}" y="{base + 17}" text-anchor="middle">{title}</text>')
        parts.append(f'<text x="{middle}" y="{base + 32}" text-anchor="middle">{row["nicMBPerS"]:g} MB/s</text>')
        x += 22
    shown = [key for key in named if any(key in row for row in rows)]
    for i, key in enumerate(shown):
        at = left + 180 * i
        parts.append(f'<rect x="{at}" y="{base + 48}" width="11" height="11" fill="{named[key][1]}"/>')
        parts.append(f'<text x="{at + 16}" y="{base + 58}">{named[key][0]}</text>')
    width = max(x, left + 180 * len(shown))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {base + 70}" font-family="sans-serif" font-size="12" '
        'fill="#1f2933" role="img" aria-label="Milliseconds of a training step">'
    )
    back = f'<rect width="{width}" height="{base + 70}" fill="white"/>'
    axis = f'<text x="{left - 10}" y="20" text-anchor="end">ms</text><path d="M{left - 6} {base}H{x}" stroke="#9aa5b1"/>'
    return "\n".join([head, back, axis, *parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("moeplan", help="the program")
    parser.add_argument("--nics", default="25,100,400", help="of the emulated nodes, in MB/s (default: %(default)s)")
    parser.add_argument("--cases", default="tp1,tp2,cp", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of a run; the first is not counted")
    parser.add_argument("--budget", type=int, default=40, help="seconds of each calibration (default: %(default)s)")
    parser.add_argument("--figure", help="write the figure there, as SVG: of all rows of --json, where that is given")
    parser.add_argument("--json", type=pathlib.Path, help="keep the rows there; other cases and NICs that it has stay")
    options = parser.parse_args()
    rows = {}
    if options.json and options.json.exists():
        rows = {(row["case"], row["nicMBPerS"]): row for row in json.loads(options.json.read_text())}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        for case in options.cases.split(","):
            for nic in map(float, options.nics.split(",")):
                special = {"cp": bench.contexts, "overlap": bench.overlap}
                row = rows[case, nic] = special[case](nic) if case in special else bench.tensor_parallel(nic, case)
                print(line(row), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(list(rows.values()), indent=2) + "\n")
    if options.figure:
        order = [*CASES, "cp"]
        drawn = [row for row in rows.values() if row["case"] in order]
        shown = sorted(drawn, key=lambda row: (order.index(row["case"]), row["nicMBPerS"]))
        pathlib.Path(options.figure).write_text(figure(shown))


if __name__ == "__main__":
    main()
