#!/usr/bin/env python3
"""Times PyTorch's forms of what gpu_bench measures, on the same shapes, and prints JSON that sets them beside ours.

Usage: compare_torch.py BENCH.json

Each operation is timed eagerly and, where Triton is installed, compiled by torch.compile; the faster counts. An
operation of ours that takes longer than theirs is marked "slower". Without PyTorch or a GPU the JSON says so and the
exit status is still 0: there is nothing to compare.
"""
import json
import statistics
import sys

# timing.cc has the same numbers.
WARM_UPS, LAUNCHES, MOST_RUNS, LAUNCH_S = 5, 16, 100, 1e-3

# The shapes of row_bench.cc, codec_bench.cc, gate_bench.cc and gemm_bench.cc.
TOKENS, COLUMNS, EXPERTS, CHOICES = 16384, 4096, 64, 2
SLOTS = TOKENS * CHOICES
CAPACITY = SLOTS // EXPERTS
CODEC_ROWS = 32768
LOGIT_BYTES = 128 * 1024 * 1024
GEMM_INNER, GEMM_COLUMNS, GEMM_EXPERTS = 4096, (2048, 8192), 16


def seconds_of(torch, run, in_graph):
    """The median of launches in a row: of a CUDA graph, which is many runs, or of a run. As MedianSeconds and
    MedianSecondsQueued in timing.cc."""
    seconds = median_of_launches(torch, run)
    if not in_graph:
        return seconds
    runs = min(max(int(LAUNCH_S / seconds), 1), MOST_RUNS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            run()
    return median_of_launches(torch, graph.replay) / runs


def median_of_launches(torch, launch):
    for _ in range(WARM_UPS):
        launch()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
    for event in events:
        event.record()
        if event is not events[-1]:
            launch()
    torch.cuda.synchronize()
    return statistics.median(one.elapsed_time(other) / 1e3 for one, other in zip(events, events[1:]))


def row_operations(torch, dtype, suffix):
    """Moves of rows; every expert has as many tokens, of everywhere."""
    functional = torch.nn.functional
    pair = torch.arange(SLOTS, device="cuda")
    expert = (pair * 37 + pair // EXPERTS) % EXPERTS
    token_of_slot = torch.argsort(expert, stable=True) // CHOICES
    tokens = torch.randn(TOKENS, COLUMNS, device="cuda", dtype=dtype)
    slots = torch.randn(SLOTS, COLUMNS, device="cuda", dtype=dtype)
    gradient = torch.randn(SLOTS, COLUMNS, device="cuda", dtype=dtype)
    weight = torch.full((SLOTS, 1), 0.5, device="cuda", dtype=dtype)
    cells = torch.arange(EXPERTS, device="cuda") * 5 % EXPERTS
    half = COLUMNS // 2

    def swiglu(x):
        return functional.silu(x[:, half:]) * x[:, :half]

    yield f"dispatch.{suffix}", lambda x: x.index_select(0, token_of_slot), (tokens,)
    yield f"combine_gradient.{suffix}", lambda x: x.index_select(0, token_of_slot) * weight, (tokens,)
    slot_of_pair = torch.argsort(torch.argsort(expert, stable=True))
    pair_weight = weight.view(TOKENS, CHOICES, 1)

    def gathered(x):
        return x.index_select(0, slot_of_pair).view(TOKENS, CHOICES, COLUMNS)

    yield f"combine.{suffix}", lambda x: (gathered(x) * pair_weight).sum(1), (slots,)
    yield f"dispatch_gradient.{suffix}", lambda x: gathered(x).sum(1), (slots,)
    yield (f"routing_gradient.{suffix}",
           lambda x, y: (x * y.index_select(0, token_of_slot)).sum(-1, dtype=torch.float32), (slots, tokens))
    yield (f"copy_cells.{suffix}", lambda x: x.view(EXPERTS, CAPACITY, COLUMNS).index_select(0, cells), (slots,))
    yield (f"sum_cells.{suffix}", lambda x: x.view(EXPERTS // 4, 4, CAPACITY, COLUMNS).sum(1), (slots,))
    yield f"gelu.{suffix}", functional.gelu, (slots,)
    yield f"gelu_gradient.{suffix}", torch.ops.aten.gelu_backward, (gradient, slots)
    yield f"swiglu.{suffix}", swiglu, (slots,)


def codec_operations(torch, dtype, suffix):
    elements = torch.randn(CODEC_ROWS, COLUMNS, device="cuda", dtype=dtype)

    def encode_fp8(x):
        scale = x.abs().amax(-1, keepdim=True).float() / 448
        return (x / scale).to(torch.float8_e4m3fn), scale

    def encode_int8(x):
        scale = x.abs().amax(-1, keepdim=True).float() / 127
        return (x / scale).round().to(torch.int8), scale

    def decode(codes, scale):
        return (codes.to(torch.float32) * scale).to(dtype)

    yield f"encode.FP16.{suffix}", lambda x: x.to(torch.float16), (elements,)
    yield f"decode.FP16.{suffix}", lambda x: x.to(dtype), (elements.to(torch.float16),)
    if hasattr(torch, "float8_e4m3fn"):
        yield f"encode.FP8.{suffix}", encode_fp8, (elements,)
        yield f"decode.FP8.{suffix}", decode, encode_fp8(elements)
    yield f"encode.INT8.{suffix}", encode_int8, (elements,)
    yield f"decode.INT8.{suffix}", decode, encode_int8(elements)


def gate_operations(torch):
    for experts in (8, 64, 256):
        tokens = LOGIT_BYTES // 4 // experts
        logits = torch.randn(tokens, experts, device="cuda")
        rows = torch.randn(min(tokens, 16384), COLUMNS, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(experts, COLUMNS, device="cuda")
        yield f"route.{experts}_experts", lambda x: torch.softmax(x, -1).topk(2, -1), (logits,)
        yield f"gate_logits.{experts}_experts", lambda x, w: x.float() @ w.t(), (rows, weight)


def uneven_rows(rows):
    """As in gemm_bench.cc: what the second of each two experts gives to the first."""
    counts = [rows] * GEMM_EXPERTS
    for i in range(0, GEMM_EXPERTS - 1, 2):
        moved = rows * (i + 2) // GEMM_EXPERTS // 8 * 8
        counts[i] += moved
        counts[i + 1] -= moved
    return counts


def product_operations(torch):
    for columns in GEMM_COLUMNS:
        yield from product_operations_of(torch, columns)


def product_operations_of(torch, columns):
    experts = torch.randn(GEMM_EXPERTS, GEMM_INNER, columns, device="cuda", dtype=torch.bfloat16)
    for rows in (128, 512, 2048):
        a = torch.randn(rows * GEMM_EXPERTS, GEMM_INNER, device="cuda", dtype=torch.bfloat16)
        of = f"{columns}_columns.{rows}"
        yield f"one_product.{of}", torch.mm, (a, experts[0])
        for how, counts in (("even", [rows] * GEMM_EXPERTS), ("uneven", uneven_rows(rows))):
            ends = torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)

            def one_by_one(x, w, counts=counts):
                out = x.new_empty(x.shape[0], columns)
                for i, (part, to) in enumerate(zip(x.split(counts), out.split(counts))):
                    torch.mm(part, w[i], out=to)
                return out

            def grouped(x, w, ends=ends):
                return torch._grouped_mm(x, w, offs=ends)

            use_grouped = False
            if hasattr(torch, "_grouped_mm"):
                try:
                    grouped(a, experts)
                    use_grouped = True
                except RuntimeError as error:
                    note(f"torch._grouped_mm: {error}")
            note(f"experts of {rows} rows, {how}: {'torch._grouped_mm' if use_grouped else 'torch.mm for each expert'}")
            yield f"experts.{how}.{of}", grouped if use_grouped else one_by_one, (a, experts)


def operations(torch):
    for dtype, suffix in ((torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        yield from row_operations(torch, dtype, suffix)
        yield from codec_operations(torch, dtype, suffix)
    yield from gate_operations(torch)
    yield from product_operations(torch)


def note(text):
    print(f"compare_torch: {text.splitlines()[0]}", file=sys.stderr)


def seconds_or_none(torch, run, in_graph, what):
    """None where it cannot be compiled, or not be part of a graph."""
    try:
        return seconds_of(torch, run, in_graph)
    except Exception as error:  # Whatever a compiler throws, the other form's time stands.
        note(f"{what}: {type(error).__name__}: {error}")
        return None


def compare(torch, triton, ours):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    results = []
    for name, function, arguments in operations(torch):
        if name not in ours:
            note(f"{name}: not in the benchmark's results")
            continue
        function(*arguments)  # Raises what is wrong with it, beside which nothing but a graph may fail.
        is_product = name.startswith(("experts.", "one_product."))
        eager_s = seconds_or_none(torch, lambda: function(*arguments), not is_product, name)
        compiled_s = None
        if triton and not is_product:
            torch._dynamo.reset()
            compiled = torch.compile(function, dynamic=False)
            compiled_s = seconds_or_none(torch, lambda: compiled(*arguments), True, f"{name}, compiled")
        found = [seconds for seconds in (eager_s, compiled_s) if seconds is not None]
        if not found:
            results.append({"name": name, "timeS": ours[name], "torch": "no time: see the log"})
            continue
        torch_s = min(found)
        results.append({"name": name, "timeS": ours[name], "torchS": eager_s, "torchCompiledS": compiled_s,
                        "ratio": ours[name] / torch_s, "slower": ours[name] > torch_s})
    return results


def main(arguments):
    if len(arguments) != 2 or arguments[1] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError:
        print(json.dumps({"torch": "not installed"}))
        return 0
    try:
        import triton
        triton_version = triton.__version__
    except ImportError:
        triton_version = None
    answer = {"torch": torch.__version__, "triton": triton_version or "not installed"}
    if not torch.cuda.is_available():
        answer["operations"] = "torch finds no GPU"
    else:
        with open(arguments[1], encoding="utf-8") as file:
            ours = {kernel["name"]: kernel["timeS"] for kernel in json.load(file)["kernels"]}
        answer["operations"] = compare(torch, triton_version is not None, ours)
    print(json.dumps(answer, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
