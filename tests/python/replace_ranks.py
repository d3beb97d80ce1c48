"""What the ranks of replace_test.py run (rank_process.py says how)."""

import copy

import torch
from published_blocks import BlockOfModules, DeepSeekBlock, FusedBlock, GptOssBlock, Layer, Llama4Block, OlmoeBlock
from torch import nn
from torch_ranks import close

import moeplan
import moeplan.torch
from moeplan.torch import hugging_face

MODEL, HIDDEN, EXPERTS, TOP_K, TOKENS = 12, 16, 8, 3, 14
ADAPTERS = {BlockOfModules: hugging_face.mixtral, FusedBlock: hugging_face.qwen3_moe}


def plan_of(schedule, layout, **layer):
    shape = {
        "batch": 2,
        "sequenceLength": TOKENS // 2,
        "modelDim": MODEL,
        "hiddenDim": HIDDEN,
        "experts": EXPERTS,
        "topK": TOP_K,
        "bytesPerElement": 4,
        "expertMatrices": 3,
        **layer,
    }
    best = {"schedule": schedule, "chunks": 2 if schedule == "MONTA_O3" else 1, "partitionDegree": 1}
    return {"workload": {"layer": shape, "layout": layout, "phase": "TRAINING"}, "best": best}


def model_of(seed):
    torch.manual_seed(seed)
    blocks = (BlockOfModules(MODEL, HIDDEN, EXPERTS, TOP_K), FusedBlock(MODEL, HIDDEN, EXPERTS, TOP_K))
    return nn.Sequential(*(Layer(MODEL, block) for block in blocks), nn.Linear(MODEL, MODEL))


def batch_of(step, source):
    """Of a step and a source batch; in later steps tokens lean towards one direction, so that experts are uneven."""
    generator = torch.Generator().manual_seed(100 * step + source)
    x = torch.randn(2, TOKENS // 2, MODEL, generator=generator)
    return x + step * torch.linspace(-1, 1, MODEL)


def loss_of(model, x):
    return (model(x) - x.flip(-1)).square().sum()


def learn(world, model, plain, layout):
    """Three steps of a model with replaced blocks beside one without, whose losses are the same."""
    tensor = layout.get("tensorParallel", 1)
    own, sources = world.rank // tensor, world.ranks // tensor
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3) for one in (model, plain)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(model, batch_of(step, own))
        loss.backward()
        moeplan.torch.reduce_gradients(model)
        for name, value in model.named_parameters():
            if ".layer." not in name:  # Every rank of an MP group has the same gradients.
                world._sum(value.grad, [list(range(i, world.ranks, tensor)) for i in range(tensor)])
        losses = [loss_of(plain, batch_of(step, source)) for source in range(sources)]
        sum(losses).backward()
        close(loss.detach(), losses[own].detach(), f"loss of step {step}", tolerance=1e-5)
        for optimizer in optimizers:
            optimizer.step()


def learns_the_same(world, schedule, layout):
    """A model whose blocks are replaced has the losses and the weights of one that is left alone, step by step."""
    model, plain = model_of(1), model_of(1)
    replacement = moeplan.torch.replace(model, ADAPTERS, plan_of(schedule, layout), world)
    assert sorted(replacement.layers) == ["0.mlp", "1.mlp"]
    assert not any(isinstance(module, tuple(ADAPTERS)) for module in model.modules())
    learn(world, model, plain, layout)
    replacement.restore()
    assert replacement.layers == {}
    assert model.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        close(model.state_dict()[name], value, name)
    x = batch_of(1, 0)
    close(model(x).detach(), plain(x).detach(), "the model as it was")


# By name: the block, its adapter, and what a plan says of its layer.
ROUTED = {
    "deepseek_v3": (
        DeepSeekBlock,
        hugging_face.deepseek_v3,
        {
            "sharedHiddenDim": 2 * HIDDEN,
            "router": {
                "scoreFunction": "SIGMOID",
                "correctionBias": True,
                "weightScale": 2.5,
                "expertGroups": 4,
                "groupsPerToken": 2,
            },
        },
    ),
    "gpt_oss": (
        GptOssBlock,
        hugging_face.gpt_oss,
        {"expertBias": True, "swigluLimit": 1.5, "router": {"bias": True}},
    ),
    "olmoe": (OlmoeBlock, hugging_face.qwen3_moe, {"router": {"rawWeights": True}}),
    "llama4": (
        Llama4Block,
        hugging_face.llama4,
        {
            "topK": 1,
            "sharedHiddenDim": HIDDEN,
            "router": {"scoreFunction": "SIGMOID", "rawWeights": True, "weighsInput": True},
        },
    ),
}


def other_routers(world, kind, schedule, layout):
    """Blocks of models with other routers: losses, gradients and weights as those that are left alone have them."""
    block, adapter, layer = ROUTED[kind]
    top_k = layer.get("topK", TOP_K)
    torch.manual_seed(6)
    blocks = [block(MODEL, HIDDEN, EXPERTS, top_k)]
    blocks.append(DeepSeekBlock(MODEL, HIDDEN, EXPERTS, top_k, fused=True) if block is DeepSeekBlock else blocks[0])
    model = nn.Sequential(*(Layer(MODEL, one) for one in blocks), nn.Linear(MODEL, MODEL))
    plain = copy.deepcopy(model)
    plan = plan_of(schedule, layout, **layer)
    if top_k == 1:
        plan["best"]["chunks"] = 1  # There are slots for no more.
    for field, value in (("router", {}), ("swigluLimit", 0)):
        wrong = plan_of(schedule, layout, **{**layer, field: value})
        if field in layer:
            refused(model, {block: adapter}, wrong, f"layer.{field}", world)
    replacement = moeplan.torch.replace(model, {block: adapter}, plan, world)
    learn(world, model, plain, layout)
    replacement.restore()
    for name, value in plain.state_dict().items():
        close(model.state_dict()[name], value, name)


def refused(model, adapters, plan, field, world):
    """``replace`` raises InvalidInput, which names the field, and leaves the model as it is."""
    before = copy.deepcopy(model.state_dict())
    try:
        moeplan.torch.replace(model, adapters, plan, world)
    except moeplan.InvalidInput as error:
        assert field in str(error), (field, error)
    else:
        raise AssertionError(f"{field}: taken")
    assert before.keys() == model.state_dict().keys()
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name


def published(world, kind):
    """A small model of transformers itself learns the same with its blocks replaced, and has them back after."""
    import transformers

    sizes = {
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": EXPERTS,
        "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "norm_topk_prob": True,
        "max_position_embeddings": 64,
    }
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(world.device).float()
    plain = copy.deepcopy(model)
    hidden = sizes["intermediate_size" if kind == "mixtral" else "moe_intermediate_size"]
    shape = {"batch": 2, "sequenceLength": 9, "modelDim": 32, "hiddenDim": hidden}
    plan = plan_of("PIPELINE", {"expertParallel": world.ranks}, **shape)
    replacement = moeplan.torch.replace(model, hugging_face.adapters(), plan, world)
    assert len(replacement.layers) == 2, sorted(replacement.layers)
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-2) for one in (model, plain)]
    for step in range(3):
        tokens = torch.randint(0, 61, (world.ranks, 2, 9), generator=torch.Generator().manual_seed(step)).to(world.device)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(input_ids=tokens[world.rank], labels=tokens[world.rank]).loss
        loss.backward()
        moeplan.torch.reduce_gradients(model)
        for parameter_name, value in model.named_parameters():
            if ".layer." not in parameter_name:
                world._sum(value.grad, [list(range(world.ranks))])
        losses = [plain(input_ids=rows, labels=rows).loss for rows in tokens]
        sum(losses).backward()
        close(loss.detach(), losses[world.rank].detach(), f"loss of step {step}", tolerance=1e-5)
        for optimizer in optimizers:
            optimizer.step()
    replacement.restore()
    for parameter_name, value in plain.state_dict().items():
        close(model.state_dict()[parameter_name], value, parameter_name)


def logits_learn_too(world):
    """The router's logits that a block returns have a gradient, for the job's own auxiliary loss."""
    torch.manual_seed(3)
    plain = BlockOfModules(MODEL, HIDDEN, EXPERTS, TOP_K)
    model = nn.Sequential(copy.deepcopy(plain))
    replacement = moeplan.torch.replace(model, ADAPTERS, plan_of("BASELINE", {"expertParallel": 2}), world)
    for one in (model[0], plain):
        y, logits = one(batch_of(0, 0))
        assert logits.shape == (TOKENS, EXPERTS)
        (y.sum() + logits.square().sum()).backward()
    layer = replacement.layers["0"]
    close(layer.gate.grad, plain.gate.weight.grad, "the gate's gradient")

    # Experts that have moved keep the block's numbers in logits, and when the block comes back.
    before = copy.deepcopy(plain.state_dict())
    layer.place_experts([5, 0, 7, 2, 1, 4, 3, 6])
    for found, expected in zip(model[0](batch_of(0, 0)), plain(batch_of(0, 0))):
        close(found.detach(), expected.detach(), "a block whose experts have moved")
    replacement.restore()
    for name, value in before.items():
        assert torch.equal(model[0].state_dict()[name], value), name


def state_stays(world):
    """A block that two layers share stays one; what is frozen, or in evaluation mode, stays so, and comes back so."""
    plan = plan_of("BASELINE", {"expertParallel": 2})
    model = model_of(4)
    model.append(Layer(MODEL, model[1].mlp))
    model[0].mlp.requires_grad_(False)
    replacement = moeplan.torch.replace(model, ADAPTERS, plan, world)
    assert model[3].mlp is model[1].mlp and len(replacement.layers) == 3
    assert not any(value.requires_grad for value in replacement.layers["0.mlp"].parameters())
    assert all(value.requires_grad for value in replacement.layers["1.mlp"].parameters())
    loss_of(model, batch_of(0, 0)).backward()
    model.eval()
    replacement.restore()
    assert model[3].mlp is model[1].mlp and isinstance(model[1].mlp, FusedBlock)
    assert not model[0].mlp.training and not model[1].mlp.training


def of_modules(block):
    """An adapter that takes the block at its word."""
    names = {"gate_up": "w1", "up": "w3", "down": "w2"}
    weights = {name: [getattr(expert, own).weight.T for expert in block.experts] for name, own in names.items()}
    return {"gate": block.gate.weight, **weights, "top_k": TOP_K, "dropless": True}


class Counting(BlockOfModules):
    """Counts its calls in a buffer, and draws a number in each."""

    def __init__(self):
        super().__init__(MODEL, HIDDEN, EXPERTS, TOP_K)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, hidden_states):
        self.calls += torch.rand(()).ceil()
        return super().forward(hidden_states)[0]


def compared(world):
    """A block that does not compute what the adapter and the plan say is refused; comparing leaves no trace."""
    plan = plan_of("BASELINE", {"expertParallel": 2})

    def tell(change, told, plan=plan, seed=6):
        torch.manual_seed(seed)
        model = nn.Sequential(Layer(MODEL, BlockOfModules(MODEL, HIDDEN, EXPERTS, TOP_K)))
        change(model[0].mlp)
        refused(model, {BlockOfModules: of_modules}, plan, told, world)
        return model

    def other_activation(block):
        for expert in block.experts:
            expert.act_fn = nn.ReLU()

    def noise(block):
        own = block.gate.forward
        block.gate.forward = lambda x: own(x) + torch.randn(len(x), EXPERTS)

    model = tell(other_activation, "other values than those of its layer for 100% of some random rows")
    moeplan.torch.replace(model, {BlockOfModules: of_modules}, plan, world, compare=False)
    tell(noise, "other values than those of its layer")
    tell(lambda block: None, "other values than those of its layer", seed=world.rank)  # Ranks have other models.
    tell(other_activation, "other values", plan_of("BASELINE", {"expertParallel": 2}, router={"rawWeights": False}))
    tell(lambda block: block.register_parameter("scale", nn.Parameter(torch.ones(1))), "0.mlp: scale: found a parameter")
    tell(lambda block: block.add_module("drops", nn.Dropout(0.1)), "0.mlp.drops.p: found 0.1")

    torch.manual_seed(7)
    block = Counting()
    block.gate.bias = nn.Parameter(torch.zeros(EXPERTS), requires_grad=False)
    refused(nn.Sequential(block), {Counting: of_modules}, plan, "0: gate.bias: found a parameter", world)
    block.gate.bias = None
    model = nn.Sequential(block)
    x, random = batch_of(0, 0), torch.get_rng_state()
    expected = copy.deepcopy(block)(x).detach()
    torch.set_rng_state(random)
    moeplan.torch.replace(model, {Counting: of_modules}, plan, world)
    assert torch.equal(torch.get_rng_state(), random) and block.calls == 0
    close(model[0](hidden_states=x).detach(), expected, "a block that is called with its input by name")

    # A correction bias has no gradient, so it may be a parameter that is frozen.
    layer = ROUTED["deepseek_v3"][2]
    block = DeepSeekBlock(MODEL, HIDDEN, EXPERTS, TOP_K)
    bias = block.gate.e_score_correction_bias
    del block.gate.e_score_correction_bias
    block.gate.e_score_correction_bias = nn.Parameter(bias, requires_grad=False)
    plan = plan_of("BASELINE", {"expertParallel": 2}, **layer)
    replacement = moeplan.torch.replace(nn.Sequential(block), {DeepSeekBlock: hugging_face.deepseek_v3}, plan, world)
    assert replacement.layers["0"].gate.requires_grad and replacement.layers["0"].up.requires_grad


def refusals(world):
    model = model_of(2)
    layout = {"expertParallel": 2}

    refused(model, {}, plan_of("BASELINE", layout), "no block of no class", world)
    refused(model, {nn.Conv2d: hugging_face.mixtral}, plan_of("BASELINE", layout), "no block of Conv2d", world)
    refused(model, ADAPTERS, plan_of("BASELINE", layout, gate="HASH"), "layer.gate", world)
    refused(model, ADAPTERS, plan_of("BASELINE", layout, topK=2), "layer.topK", world)
    refused(model, ADAPTERS, plan_of("BASELINE", layout, capacityFactor=1.25), "layer.capacityFactor", world)
    refused(model, ADAPTERS, plan_of("BASELINE", layout, hiddenDim=8), "up: found a tensor of shape", world)
    refused(model, ADAPTERS, plan_of("BASELINE", layout, expertMatrices=2), "gate_up: found a tensor", world)
    model[0].mlp.gate.weight.requires_grad_(False)
    refused(model, ADAPTERS, plan_of("BASELINE", layout), "requires_grad", world)
    model[0].mlp.gate.weight.requires_grad_(True)
    wrong = {BlockOfModules: lambda block: {**hugging_face.mixtral(block).weights, "topk": 3}}
    refused(model, wrong, plan_of("BASELINE", layout), "topk: found it among", world)
    other = {BlockOfModules: lambda block: {**hugging_face.mixtral(block).weights, "top_k": 2}}
    refused(model, other, plan_of("BASELINE", layout), "layer.topK", world)
    try:
        hugging_face.mixtral(BlockOfModules(MODEL, HIDDEN, EXPERTS, 1))
    except moeplan.InvalidInput as error:
        assert error.field == "top_k"
    else:
        raise AssertionError("top-k 1 taken")
    model[0].mlp.jitter_noise = 0.1
    refused(model, ADAPTERS, plan_of("BASELINE", layout), "router_jitter_noise", world)
    model[0].mlp.jitter_noise = 0
    model[1].mlp.gate.norm_topk_prob = False
    refused(model, ADAPTERS, plan_of("BASELINE", layout), "layer.router.rawWeights", world)
    model[1].mlp.gate.norm_topk_prob = True
    model[1].mlp.experts.act_fn = nn.GELU()
    refused(model, ADAPTERS, plan_of("BASELINE", layout), "hidden_act", world)
    model[1].mlp.experts.act_fn = nn.SiLU()

    # An adapter of copies is found out when they are to be written to; one that gives a dict or a tuple is taken.
    def of_copies(block):
        weights = {name: torch.stack([*value]) for name, value in hugging_face.mixtral(block).weights.items()}
        return weights, "TOP_K"

    replacement = moeplan.torch.replace(model, {BlockOfModules: of_copies}, plan_of("BASELINE", layout), world)
    assert sorted(replacement.layers) == ["0.mlp"]
    with torch.no_grad():
        replacement.layers["0.mlp"].up += 1
    try:
        replacement.restore()
    except moeplan.InvalidInput as error:
        assert "a view of the block's parameters" in str(error), error
    else:
        raise AssertionError("copies taken")
    assert "0.mlp" in replacement.layers and not isinstance(model[0].mlp, BlockOfModules)
