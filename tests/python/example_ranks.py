"""What the ranks of example_test.py run: python/examples/train_moe_lm.py as its command line does, without its start."""

import functools
import os
import pathlib
import sys
from unittest import mock

import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))

import train_moe_lm  # noqa: E402


def run(_, name, arguments):
    """The example with these options, whose ranks meet in the file STORE, so that no case needs a free port."""
    assert name == "train", name
    here = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    meet = functools.partial(dist.init_process_group, init_method=f"file://{os.environ['STORE']}", **here)
    with mock.patch.object(dist, "init_process_group", meet), mock.patch.object(sys, "argv", ["train_moe_lm", *arguments["options"]]):
        train_moe_lm.main()
