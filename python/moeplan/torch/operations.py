"""What a traced step may consist of: the operations of the contract for modules and functions, and what is refused."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from moeplan.errors import InvalidInput, mismatch
from moeplan.torch.layer import MoELayer

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_DROPOUTS = "torch.nn.modules.dropout"
_FAMILIES = {
    "torch.nn.modules.activation": "ELEMENTWISE",
    "torch.nn.modules.dropout": "ELEMENTWISE",
    "torch.nn.modules.flatten": "ELEMENTWISE",
    "torch.nn.modules.loss": "OTHER",
}
_NORMS = ("LayerNorm", "GroupNorm", "RMSNorm")
_TAKEN = "Linear, Embedding, LayerNorm, RMSNorm, GroupNorm, Dropout, activations, losses and moeplan.torch.MoELayer"

_MATMULS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "__matmul__", "__rmatmul__", "tensordot"}
_SOFTMAXES = {"softmax", "log_softmax", "_softmax"}
_NORM_FUNCTIONS = {"layer_norm", "group_norm", "rms_norm", "native_layer_norm"}
_DROPOUT_FUNCTIONS = {"dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"}
_RANDOM = {
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli", "multinomial"),
    *("normal_", "uniform_", "bernoulli_", "random_", "exponential_", "gumbel_softmax", "rrelu", "poisson"),
}
_UNKNOWN = {
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"),
    *("batch_norm", "instance_norm", "lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward", "embedding_bag"),
    *("_native_multi_head_attention", "ctc_loss"),
}
_IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__iand__", "__ior__", "__ipow__"}
_LIKE = {"zeros_like": "new_zeros", "ones_like": "new_ones", "full_like": "new_full", "empty_like": "new_empty"}
# They change no value, and give none.
ASIDE = {"requires_grad", "requires_grad_", "retain_grad", "register_hook"}
# They move samples where their dimension is that of the batch, whatever the values. By name: the place of the dimension
# among the arguments, and what it is where it is not said.
_MOVES = {
    **{"flip": (1, None), "roll": (2, None), "index_select": (1, None), "cumsum": (1, None), "cumprod": (1, None)},
    **{"sort": (1, -1), "argsort": (1, -1), "flipud": (9, 0), "rot90": (2, (0, 1))},
}
# What these give has a shape, or is a value, that depends on what the step computes.
_BY_VALUE = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount", "histc"}
_ON_HOST = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "is_nonzero", "equal", "allclose"}


def is_leaf(module: nn.Module, path: str) -> bool:
    """Whether the module is one operation; what it calls is traced where it is not. Raises InvalidInput for PyTorch's own
    modules that have no place in a training graph."""
    if isinstance(module, MoELayer) or _own_op(module):
        return True
    if not type(module).__module__.startswith("torch.") or isinstance(module, _CONTAINERS):
        return False
    if _op_of_torch_module(module) is None:
        raise unknown(path, f"a module of class {type(module).__name__}")
    return True


def _own_op(module: nn.Module) -> str:
    """The operation of a norm or linear layer of the model's own, by its name, with a weight and no modules inside; else empty."""
    if type(module).__module__.startswith("torch.") or any(module.children()):
        return ""
    if not isinstance(getattr(module, "weight", None), nn.Parameter):
        return ""
    if not set(dict(module.named_parameters())) <= {"weight", "bias"}:
        return ""  # It may be several operations, as one with low-rank matrices beside its own.
    name = type(module).__name__.lower()
    return "LAYER_NORM" if name.endswith("norm") else "MATMUL" if name.endswith("linear") or name == "conv1d" else ""


def unknown(path: str, found: str) -> InvalidInput:
    return mismatch(path or "model", found, f"{_TAKEN}, or a module that is made of those; keep it out of the captured model")


def _op_of_torch_module(module: nn.Module) -> Optional[str]:
    name, family = type(module).__name__, type(module).__module__
    if name in ("Linear", "NonDynamicallyQuantizableLinear"):
        return "MATMUL"
    if name == "Embedding":
        return "OTHER" if module.max_norm is None else None
    if name in _NORMS:
        return "LAYER_NORM"
    if name == "Identity":
        return "ELEMENTWISE"
    if "Softmax" in name and family == "torch.nn.modules.activation":
        return "SOFTMAX"
    if name in ("MultiheadAttention", "RReLU", "CTCLoss"):
        return None
    return _FAMILIES.get(family)


def op_of_module(module: nn.Module) -> str:
    if isinstance(module, MoELayer):
        return "MOE"
    return _own_op(module) or _op_of_torch_module(module) or "OTHER"


def op_of_function(name: str) -> str:
    if name in _MATMULS:
        return "MATMUL"
    if name in _SOFTMAXES:
        return "SOFTMAX"
    if name in _NORM_FUNCTIONS:
        return "LAYER_NORM"
    if name == "scaled_dot_product_attention":
        return "ATTENTION"
    return "OTHER" if name.endswith(("_loss", "cross_entropy")) or name == "embedding" else "ELEMENTWISE"


def name_of(function: Any) -> str:
    """As torch.fx names the node of such a call: "add", "softmax", "T", ..."""
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", name))
    return name if name in _ON_HOST else name.strip("_") + ("_" if is_in_place(name) else "")


def is_in_place(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE


def by_shape(name: str, function: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The same call for a function that looks at a tensor's shape, dtype and device alone, without the tensor."""
    if name in _LIKE and "out" not in kwargs:
        kwargs = {key: value for key, value in kwargs.items() if key != "memory_format"}
        return getattr(torch.Tensor, _LIKE[name]), (args[0].detach().new_empty(0), tuple(args[0].shape), *args[1:]), kwargs
    if name.startswith("new_") and isinstance(args[0], torch.Tensor):
        return function, (args[0].detach().new_empty(0), *args[1:]), kwargs
    return function, args, kwargs


def is_dropout(module: nn.Module) -> bool:
    return type(module).__module__ == _DROPOUTS and module.training and getattr(module, "p", 0) > 0


def without_dropout(name: str, args: Any, kwargs: dict[str, Any]) -> Optional[tuple[Any, dict[str, Any]]]:
    """The arguments of a call that draws a dropout's mask such that it drops nothing; None for one that draws none."""
    if name in _DROPOUT_FUNCTIONS:
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        if rate == 0 or not training:
            return None
        return (args[0], 0.0, True), {}
    if name == "scaled_dot_product_attention":
        rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        if rate > 0:
            return (*args[:4], 0.0, *args[5:]), ({**kwargs, "dropout_p": 0.0} if "dropout_p" in kwargs else kwargs)
    return None


def moves_samples(name: str, args: Any, kwargs: dict[str, Any], dimensions: int, axis: int) -> bool:
    """Whether a call moves what lies along ``axis`` of its first argument, which has so many dimensions."""
    if name not in _MOVES:
        return False
    place, otherwise = _MOVES[name]
    named = kwargs.get("dim", kwargs.get("dims", args[place] if len(args) > place else otherwise))
    if name == "flip" and len(args) > 2:
        named = args[1:]
    found = named if isinstance(named, (tuple, list)) else (named,)
    # Without a dimension roll moves everything.
    return any(not isinstance(one, int) or one % dimensions == axis for one in found)


def is_told_in_place(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an argument asks a function to change its first one, as dropout(x, inplace=True) does."""
    return kwargs.get("inplace") is True or (name in _DROPOUT_FUNCTIONS and len(args) > 3 and args[3] is True)


def check_function(name: str, where: str, args: Any, kwargs: dict[str, Any], varies: bool) -> None:
    """Raises InvalidInput for what no training graph has. ``varies``: it depends on inputs or parameters."""
    if name == "backward" or kwargs.get("out") is not None:
        raise mismatch(where, f"a call of {name}{' with out' if name != 'backward' else ''}", "operations that return tensors")
    if name in _UNKNOWN:
        raise unknown(where, f"a call of {name}")
    if name in _RANDOM:
        raise mismatch(where, f"a call of {name}", "random numbers of Dropout alone: others differ in a step that is cut")
    if not varies:
        return
    if name in _ON_HOST:
        raise mismatch(where, f"a call of {name}, which reads a value of the step", "operations that no value decides")
    if _shape_by_value(name, args, kwargs):
        raise mismatch(
            where,
            f"a call of {name}, whose shape depends on values",
            "shapes that follow the batch alone; a model's own MoE block is swapped by moeplan.torch.replace first",
        )


def _shape_by_value(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    if name == "repeat_interleave":
        return isinstance(kwargs.get("repeats", args[1] if len(args) > 1 else args[0]), torch.Tensor)
    return name in _BY_VALUE or (name == "where" and len(args) == 1) or (name == "getitem" and _by_mask(args))


def _by_mask(args: Any) -> bool:
    index = args[1] if isinstance(args[1], (tuple, list)) else (args[1],)
    return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in index)
