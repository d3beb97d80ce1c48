"""moeplan.torch on a card: the same layers, against plain PyTorch in double precision."""

import os

import pytest
from ranks import run_ranks

torch = pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no card here")
SEED = int(os.environ.get("MOEPLAN_TEST_SEED", "20261127"))


def test_random_plans_equal_plain_pytorch(tmp_path):
    run_ranks(tmp_path, 1, "equality", device="cuda", draws=30, seed=SEED)


def test_ranks_may_share_a_card(tmp_path):
    run_ranks(tmp_path, 2, "equality", device="cuda", draws=10, seed=SEED)


def test_what_jobs_do(tmp_path):
    run_ranks(tmp_path, 4, "what_jobs_do", gpus_per_node=2, device="cuda")


def test_experts_move_between_ranks(tmp_path):
    arguments = {"layout": {"expertParallel": 4}, "router": {"scoreFunction": "SIGMOID", "correctionBias": True}}
    run_ranks(tmp_path, 4, "experts_move", gpus_per_node=2, device="cuda", **arguments)


def test_calls_are_queued_behind_the_current_stream(tmp_path):
    run_ranks(tmp_path, 1, "behind_a_stream", device="cuda")


def test_gradients_are_the_jobs(tmp_path):
    run_ranks(tmp_path, 1, "gradients_are_the_jobs", device="cuda")


@pytest.mark.parametrize("kind", ["gpt2_like", "mixtral_like"])
def test_the_instructions_compute_the_step(tmp_path, kind):
    run_ranks(tmp_path, 2, "computes_the_step", program="capture_ranks", device="cuda", gpus_per_node=2, kind=kind)


@pytest.mark.parametrize("kind", ["gpt2_like", "mixtral_like"])
def test_a_strangers_model_is_captured(tmp_path, kind):
    if "MOEPLAN_BIN" not in os.environ:
        pytest.skip("MOEPLAN_BIN names no planner")
    arguments = {"kind": kind, "cache": str(tmp_path / "c.db")}
    run_ranks(tmp_path, 2, "captured", program="capture_ranks", device="cuda", gpus_per_node=2, **arguments)


@pytest.mark.parametrize("kind", ["gpt2_like", "mixtral_like"])
def test_a_plan_of_a_captured_step_is_run(tmp_path, kind):
    if "MOEPLAN_BIN" not in os.environ:
        pytest.skip("MOEPLAN_BIN names no planner")
    run_ranks(tmp_path, 2, "model_of_strangers", program="parts_ranks", device="cuda", gpus_per_node=1, kind=kind)


@pytest.mark.parametrize("name", ["gradients", "special_models", "distributed_data_parallel"])
def test_weight_gradients_wait(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="scheduled_ranks", device="cuda", gpus_per_node=1)


@pytest.mark.parametrize("name", ["gradients", "with_weight_gradients"])
def test_ranges_run_in_parts(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="parts_ranks", device="cuda", gpus_per_node=1)


def test_random_ranges_and_weight_gradients(tmp_path):
    run_ranks(tmp_path, 2, "random_plans", program="parts_ranks", device="cuda", gpus_per_node=1, draws=8, seed=SEED)


def test_two_parts_of_a_step_take_turns(tmp_path):
    run_ranks(tmp_path, 4, "side_by_side", device="cuda", gpus_per_node=2)


def test_a_lost_rank_is_named_within_the_deadline(tmp_path):
    run_ranks(tmp_path, 4, "lost_rank", gpus_per_node=2, phase="forward", deadline_s=5, device="cuda")
