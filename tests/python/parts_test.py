"""Ranges of a model's forward pass in parts (moeplan.torch.scheduled), on ranks as processes."""

import os

import pytest
from ranks import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

KINDS = ["gpt2_like", "mixtral_like", "deepseek_like"]


@pytest.mark.parametrize(
    "name", ["gradients", "with_weight_gradients", "turns", "other_passes", "distributed_data_parallel", "refusals"]
)
def test_parts_are_the_whole(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="parts_ranks", gpus_per_node=1)


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_strangers(tmp_path, kind):
    if "MOEPLAN_BIN" not in os.environ:
        pytest.skip("MOEPLAN_BIN names no planner")
    run_ranks(tmp_path, 2, "model_of_strangers", program="parts_ranks", gpus_per_node=1, kind=kind)


def test_random_plans(tmp_path):
    seed = int(os.environ.get("MOEPLAN_TEST_SEED", "20261127"))
    run_ranks(tmp_path, 2, "random_plans", program="parts_ranks", gpus_per_node=1, draws=8, seed=seed)


@pytest.mark.parametrize("name, arguments", [("with_weight_gradients", {}), ("random_plans", {"draws": 4, "seed": 20261128})])
def test_passes_under_way_have_memory_of_their_own(tmp_path, name, arguments):
    run_ranks(tmp_path, 2, name, program="card_memory_ranks", gpus_per_node=1, **arguments)


def test_a_lost_rank_is_named_within_the_deadline(tmp_path):
    run_ranks(tmp_path, 2, "lost_rank", program="parts_ranks", gpus_per_node=1, deadline_s=5)
