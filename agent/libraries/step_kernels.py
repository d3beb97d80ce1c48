"""Times the kernels of a training step through the libraries that a job runs.

The agent (agent/libraries/library_kernels.h) starts this program with the job's own Python, and with "cpu" or a GPU, as
PyTorch names it, as its argument. It reads one request a line as JSON from standard input and writes one answer a line
to the descriptor that standard output had at the start:

  {"kernel", "bytesPerElement", "shape", "size", "warmUps", "repeats"}
      -> {"timesS": [seconds], "library": "torch 2.5.1, flash_attn 2.7.0"}  or  {"leftOut": "why"}

Keys and sizes are those of a sample (docs/contract.md, models/cost/operation.h). Of several libraries that have a
kernel, the first in the order below counts; the answer names it.
The first line answers no request: {"ready": "torch 2.5.1 on cuda:0"} or {"failed": "why"}.
"""

import importlib.metadata
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
# Answers have a descriptor of their own, so that nothing that libraries print comes between them.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
# Requests have one, too, so that no process that libraries start reads them.
REQUESTS = os.fdopen(os.dup(0), "rb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def answer(message):
    ANSWERS.write(json.dumps(message) + "\n")
    ANSWERS.flush()


DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
try:
    import torch
    import torch.nn.functional as F

    if DEVICE == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    else:
        torch.cuda.set_device(DEVICE)
    torch.zeros(1, device=DEVICE)
except Exception as error:  # Whatever keeps the library from starting is told, in one line.
    answer({"failed": " ".join(str(error).split()) or type(error).__name__})
    sys.exit(0)

TORCH = "torch " + torch.__version__.split("+")[0]
ON_GPU = DEVICE != "cpu"


class LeftOut(Exception):
    """No library here has the kernel; the message says why."""


def named(module):
    """The module and "name version", or LeftOut where it is not installed."""
    try:
        found = __import__(module, fromlist=["_"])
    except Exception as error:
        raise LeftOut(f"no {module}: {error}")
    version = getattr(found, "__version__", "")
    if not version:
        try:
            version = importlib.metadata.version(module.split(".")[0])
        except importlib.metadata.PackageNotFoundError:
            pass
    return found, f"{module} {version}".strip()


ELEMENTS = {2: torch.bfloat16, 4: torch.float32}


def element(request):
    size = request.get("bytesPerElement") or 2
    if size not in ELEMENTS:
        raise LeftOut(f"no library here is asked for elements of {size} bytes but for linear layers on a GPU")
    return ELEMENTS[size]


def values(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, dtype=torch.float32, device=DEVICE).mul_(0.02).to(dtype)


# ---- Linear layers: (rows × in) · (in × out), of `experts` layers of equal rows.


def linear_sizes(request):
    shape = request["shape"]
    inner, outer, experts = shape["inFeatures"], shape["outFeatures"], shape["experts"]
    rows = max(1, round(request["size"] / (2.0 * experts * inner * outer)))
    return rows, inner, outer, experts


def product(kernel, rows, inner, outer, dtype):
    """The product of one layer: x [rows, in], w [out, in], dy [rows, out]; the weight gradient is added in FP32."""
    if kernel == "LINEAR":
        x, w = values(rows, inner, dtype=dtype), values(outer, inner, dtype=dtype)
        return lambda: F.linear(x, w)
    dy = values(rows, outer, dtype=dtype)
    if kernel == "LINEAR_INPUT_GRADIENT":
        w = values(outer, inner, dtype=dtype)
        return lambda: torch.mm(dy, w)
    x, main = values(rows, inner, dtype=dtype), torch.zeros(outer, inner, dtype=torch.float32, device=DEVICE)
    if dtype == torch.float32:
        return lambda: main.addmm_(dy.t(), x)
    return lambda: main.add_(torch.mm(dy.t(), x))


def apex_weight_gradient(request):
    if request["kernel"] != "LINEAR_WEIGHT_GRADIENT" or not ON_GPU or element(request) != torch.bfloat16:
        raise LeftOut("only sums of weight gradients in FP32 are apex's")
    rows, inner, outer, experts = linear_sizes(request)
    if experts > 1:
        raise LeftOut("apex sums one weight gradient at a time")
    fused, _ = named("fused_weight_gradient_mlp_cuda")
    x, dy = values(rows, inner), values(rows, outer)
    main = torch.zeros(outer, inner, dtype=torch.float32, device=DEVICE)
    return (lambda: fused.wgrad_gemm_accum_fp32(x, dy, main)), f"{TORCH}, apex"


def fp8_linear(request):
    if request.get("bytesPerElement") != 1:
        raise LeftOut("elements are wider")
    rows, inner, outer, experts = linear_sizes(request)
    if not ON_GPU or experts > 1 or not hasattr(torch, "_scaled_mm"):
        raise LeftOut(f"{TORCH} has no such product of 8-bit numbers here")
    one = torch.ones((), device=DEVICE)
    left, right = {"LINEAR": ((rows, inner), (outer, inner)),
                   "LINEAR_INPUT_GRADIENT": ((rows, outer), (inner, outer)),
                   "LINEAR_WEIGHT_GRADIENT": ((outer, rows), (inner, rows))}[request["kernel"]]
    a, b = values(*left).to(torch.float8_e4m3fn), values(*right).to(torch.float8_e4m3fn).t()
    out = torch.float32 if request["kernel"] == "LINEAR_WEIGHT_GRADIENT" else torch.bfloat16
    library = f"{TORCH}, _scaled_mm"
    if request["kernel"] == "LINEAR_WEIGHT_GRADIENT":
        main = torch.zeros(outer, inner, dtype=torch.float32, device=DEVICE)
        return (lambda: main.add_(torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out))), library
    return (lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out)), library


def grouped_linear(request):
    rows, inner, outer, experts = linear_sizes(request)
    if experts == 1 or not ON_GPU or element(request) != torch.bfloat16 or not hasattr(torch, "_grouped_mm"):
        raise LeftOut(f"{TORCH} has no grouped product here")
    ends = torch.arange(rows, rows * experts + 1, rows, dtype=torch.int32, device=DEVICE)
    x, dy = values(rows * experts, inner), values(rows * experts, outer)
    w = values(experts, outer, inner)
    library = f"{TORCH}, _grouped_mm"
    if request["kernel"] == "LINEAR":
        return (lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)), library
    if request["kernel"] == "LINEAR_INPUT_GRADIENT":
        return (lambda: torch._grouped_mm(dy, w, offs=ends)), library
    main = torch.zeros(experts, outer, inner, dtype=torch.float32, device=DEVICE)
    return (lambda: main.add_(torch._grouped_mm(dy.t(), x, offs=ends))), library


def plain_linear(request):
    rows, inner, outer, experts = linear_sizes(request)
    dtype = element(request)
    calls = [product(request["kernel"], rows, inner, outer, dtype) for _ in range(experts)]
    if experts == 1:
        return calls[0], TORCH

    def one_after_another():
        for call in calls:
            call()

    return one_after_another, f"{TORCH}, a product an expert"


# ---- Attention: whole sequences under a causal mask.


def attention_inputs(request, layout):
    shape = request["shape"]
    heads, kv_heads, sequence = shape["heads"], shape["kvHeads"], shape["sequence"]
    wide, narrow = shape["queryKeyDim"], shape["valueDim"]
    window = shape.get("window") or sequence
    pairs = 2.0 * sequence * window - window * window
    batch = max(1, round(request["size"] / (2.0 * pairs * heads * (wide + narrow))))
    dtype = element(request)

    def tensor(heads, dim):
        sizes = (batch, sequence, heads, dim) if layout == "bshd" else (batch, heads, sequence, dim)
        return values(*sizes, dtype=dtype).requires_grad_()

    return tensor(heads, wide), tensor(kv_heads, wide), tensor(kv_heads, narrow)


def attention_pass(request, inputs, forward):
    if request["kernel"] == "ATTENTION":
        def run():
            with torch.no_grad():
                forward()
        return run
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def flash_attention(request):
    if not ON_GPU:
        raise LeftOut("flash_attn wants a GPU")
    if request["shape"]["queryKeyDim"] != request["shape"]["valueDim"]:
        raise LeftOut("flash_attn wants keys as wide as values")
    flash_attn, library = named("flash_attn")
    q, k, v = attention_inputs(request, "bshd")
    window = request["shape"].get("window")
    sizes = (window - 1, 0) if window else (-1, -1)
    return attention_pass(request, (q, k, v),
                          lambda: flash_attn.flash_attn_func(q, k, v, causal=True, window_size=sizes)), \
        f"{TORCH}, {library}"


def mask_of(request, sequence):
    """True where a token does not see another."""
    hidden = torch.ones(sequence, sequence, dtype=torch.bool, device=DEVICE).triu_(1)
    window = request["shape"].get("window")
    return hidden | torch.ones_like(hidden).tril_(-window) if window else hidden


def torch_attention(request):
    if not hasattr(F, "scaled_dot_product_attention"):
        raise LeftOut(f"{TORCH} has no scaled_dot_product_attention")
    q, k, v = attention_inputs(request, "bhsd")
    groups = q.shape[1] // k.shape[1]
    options = {"is_causal": True}
    if request["shape"].get("window"):
        options = {"attn_mask": ~mask_of(request, q.shape[2])}
    shares_keys = "enable_gqa" in (F.scaled_dot_product_attention.__doc__ or "")
    if groups > 1 and shares_keys:
        options["enable_gqa"] = True

    def forward():
        if groups == 1 or shares_keys:
            return F.scaled_dot_product_attention(q, k, v, **options)
        wide_k, wide_v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        return F.scaled_dot_product_attention(q, wide_k, wide_v, **options)

    return attention_pass(request, (q, k, v), forward), f"{TORCH}, scaled_dot_product_attention"


def stored_attention(request):
    """What a job without a fused kernel runs: all scores are computed and stored."""
    q, k, v = attention_inputs(request, "bhsd")
    groups, sequence, scale = q.shape[1] // k.shape[1], q.shape[2], q.shape[3] ** -0.5
    mask = mask_of(request, sequence)

    def forward():
        wide_k, wide_v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.matmul(q, wide_k.transpose(-2, -1)) * scale
        return torch.matmul(torch.softmax(scores.masked_fill(mask, float("-inf")), -1), wide_v)

    return attention_pass(request, (q, k, v), forward), f"{TORCH}, scores stored"


# ---- What moves memory, on the bytes that it reads and writes. Rows are of 4096 elements where there are so many.

WIDTH = 4096


def rows_of(request, tensors, dtype, width=WIDTH):
    elements = max(1, int(request["size"] / (tensors * torch.empty(0, dtype=dtype).element_size())))
    width = min(width, elements)
    return max(1, round(elements / width)), width


def without_gradients(call):
    def run():
        with torch.no_grad():
            call()
    return run


def norm(request):
    dtype = element(request)
    rows, width = rows_of(request, 2, dtype)
    x, weight = values(rows, width, dtype=dtype), torch.ones(width, dtype=dtype, device=DEVICE)
    if ON_GPU:
        try:
            te, library = named("transformer_engine.pytorch")
            module = te.RMSNorm(width, params_dtype=dtype, device=DEVICE)
            module(x)
            return without_gradients(lambda: module(x)), f"{TORCH}, {library}"
        except Exception:  # Transformer Engine is not here, or is of another kind.
            pass
    if hasattr(F, "rms_norm"):
        return without_gradients(lambda: F.rms_norm(x, (width,), weight, 1e-5)), f"{TORCH}, rms_norm"
    return without_gradients(lambda: F.layer_norm(x, (width,), weight, None, 1e-5)), f"{TORCH}, layer_norm"


def rotary(request):
    dtype = element(request)
    dim, heads = 128, 8
    rows, width = rows_of(request, 2, dtype, dim * heads)
    heads = max(1, width // dim)
    t = values(rows, heads, dim, dtype=dtype)
    angles = torch.rand(rows, 1, dim, device=DEVICE)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def run():
        left, right = t.chunk(2, -1)
        return t * cos + torch.cat((-right, left), -1) * sin

    return without_gradients(run), f"{TORCH}, elementwise"


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def activation(request):
    dtype = element(request)
    rows, width = rows_of(request, 3, dtype)
    x = values(rows, 2 * width, dtype=dtype)
    if ON_GPU and hasattr(torch, "compile"):
        try:
            fused = torch.compile(swiglu)
            with torch.no_grad():
                fused(x)
            return without_gradients(lambda: fused(x)), f"{TORCH}, compiled"
        except Exception:  # There is no compiler on the machine.
            pass
    return without_gradients(lambda: swiglu(x)), f"{TORCH}, elementwise"


def residual(request):
    dtype = element(request)
    rows, width = rows_of(request, 3, dtype)
    x, y = values(rows, width, dtype=dtype), values(rows, width, dtype=dtype)
    return without_gradients(lambda: torch.add(x, y)), TORCH


def embedding(request):
    dtype = element(request)
    rows, width = rows_of(request, 2, dtype)
    table = values(32000, width, dtype=dtype)
    tokens = torch.randint(0, 32000, (rows,), device=DEVICE)
    return without_gradients(lambda: F.embedding(tokens, table)), TORCH


def cross_entropy(request):
    dtype = element(request)
    rows, width = rows_of(request, 2, dtype, 32000)
    logits = values(rows, width, dtype=dtype)
    tokens = torch.randint(0, width, (rows,), device=DEVICE)
    return without_gradients(lambda: F.cross_entropy(logits, tokens)), TORCH


def optimizer(request):
    """Adam on FP32 copies of BF16 weights: 46 bytes a parameter (models/step/layer_work.h, OptimizerBytes)."""
    count = max(1, round(request["size"] / 46))
    weights = values(count)
    master = weights.float().requires_grad_()
    master.grad = torch.full_like(master, 1e-3)
    options = {"fused": True} if ON_GPU else {}
    library = f"{TORCH}, AdamW"
    adam = None
    for module in ("transformer_engine.pytorch.optimizers", "apex.optimizers") if ON_GPU else ():
        try:
            found, version = named(module)
            adam, library = found.FusedAdam([master], lr=1e-4), f"{TORCH}, {version} FusedAdam"
            break
        except Exception:  # It is not here, or was built without its kernels.
            pass
    if adam is None:
        try:
            adam = torch.optim.AdamW([master], lr=1e-4, **options)
        except TypeError:  # A release before fused=True.
            adam = torch.optim.AdamW([master], lr=1e-4)

    def run():
        with torch.no_grad():
            master.grad.mul_(0.5)
            master.grad.norm()
        adam.step()
        with torch.no_grad():
            weights.copy_(master)
            master.grad.zero_()

    return run, library


# ---- Launches: the host's time for one block after another on a single row, forward and backward.

BLOCK_LAUNCHES = 12  # Norm, two linear layers, activation and residual: five forward, seven backward.


class Block(torch.nn.Module):
    def __init__(self, te):
        super().__init__()
        if te is not None:
            self.norm = te.RMSNorm(64, device=DEVICE)
            self.up, self.down = (te.Linear(64, 128, bias=False, device=DEVICE),
                                  te.Linear(64, 64, bias=False, device=DEVICE))
        else:
            self.norm = torch.nn.LayerNorm(64, device=DEVICE)
            self.up, self.down = (torch.nn.Linear(64, 128, bias=False, device=DEVICE),
                                  torch.nn.Linear(64, 64, bias=False, device=DEVICE))

    def forward(self, x):
        return x + self.down(swiglu(self.up(self.norm(x))))


def host_launch(request):
    library, te = TORCH, None
    count = max(1, round(request["size"] / BLOCK_LAUNCHES))
    if count > 10000:
        raise LeftOut(f"{count} blocks one after another are more than any step has")
    if ON_GPU:
        try:
            te, version = named("transformer_engine.pytorch")
            Block(te)(torch.randn(1, 64, device=DEVICE))
            library = f"{TORCH}, {version}"
        except Exception:  # Transformer Engine is not here, or is of another kind.
            te = None
    blocks = torch.nn.Sequential(*(Block(te) for _ in range(count)))
    x = torch.randn(1, 64, device=DEVICE, requires_grad=True)
    leaves = [x, *blocks.parameters()]
    return (lambda: torch.autograd.grad(blocks(x).sum(), leaves)), library


CHOICES = {
    "LINEAR": (fp8_linear, grouped_linear, plain_linear),
    "LINEAR_INPUT_GRADIENT": (fp8_linear, grouped_linear, plain_linear),
    "LINEAR_WEIGHT_GRADIENT": (fp8_linear, apex_weight_gradient, grouped_linear, plain_linear),
    "ATTENTION": (flash_attention, torch_attention, stored_attention),
    "ATTENTION_GRADIENT": (flash_attention, torch_attention, stored_attention),
    "NORM": (norm,),
    "ROTARY": (rotary,),
    "ACTIVATION": (activation,),
    "RESIDUAL": (residual,),
    "EMBEDDING": (embedding,),
    "CROSS_ENTROPY": (cross_entropy,),
    "OPTIMIZER": (optimizer,),
    "HOST_LAUNCH": (host_launch,),
}


def prepared(request):
    """The call to time and the library that it is of, of the first choice that works here."""
    why = []
    for choice in CHOICES.get(request["kernel"], ()):
        try:
            run, library = choice(request)
            run()
            if ON_GPU:
                torch.cuda.synchronize()
            return run, library
        except Exception as error:
            why.append(" ".join(str(error).split())[:200] or type(error).__name__)
    raise LeftOut("; ".join(why) or "no library is known for it")


def cool():
    """Leaves nothing of earlier calls in caches: inside a step a kernel finds its operands in memory."""
    global FLUSHED
    FLUSHED.add_(1)


FLUSHED = torch.zeros((256 if ON_GPU else 64) << 20, dtype=torch.uint8, device=DEVICE)


def time_once(run, cools):
    if cools:
        cool()
    if not ON_GPU or not cools:
        if ON_GPU:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        if ON_GPU:
            torch.cuda.synchronize()
        return time.perf_counter() - begin
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3


def times(request):
    run, library = prepared(request)
    cools = request["kernel"] != "HOST_LAUNCH"  # A host's caches stay warm from layer to layer.
    for _ in range(request["warmUps"]):
        time_once(run, cools)
    return {"timesS": [time_once(run, cools) for _ in range(request["repeats"])], "library": library}


def main():
    answer({"ready": f"{TORCH} on {DEVICE}"})
    for line in REQUESTS:
        try:
            reply = times(json.loads(line))
        except Exception as error:
            reply = {"leftOut": " ".join(str(error).split())[:500] or type(error).__name__}
        answer(reply)
        if ON_GPU:
            # After some errors a process has no GPU any more: the agent then starts another.
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


main()
