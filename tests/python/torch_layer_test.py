"""moeplan.torch on ranks as processes, against plain PyTorch."""

import os

import pytest
from ranks import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")


@pytest.mark.parametrize("ranks, gpus_per_node, draws", [(1, 1, 30), (2, 1, 60), (4, 2, 80)])
def test_random_plans_equal_plain_pytorch(tmp_path, ranks, gpus_per_node, draws):
    seed = int(os.environ.get("MOEPLAN_TEST_SEED", "20261126"))
    run_ranks(tmp_path, ranks, "equality", gpus_per_node=gpus_per_node, draws=draws, seed=seed)


def test_what_jobs_do(tmp_path):
    run_ranks(tmp_path, 4, "what_jobs_do", gpus_per_node=2)


def test_two_parts_of_a_step_side_by_side(tmp_path):
    run_ranks(tmp_path, 4, "side_by_side", gpus_per_node=2)


SIGMOIDS = {"scoreFunction": "SIGMOID", "correctionBias": True, "bias": True}


@pytest.mark.parametrize(
    "layout, router",
    [
        ({"expertParallel": 4}, {}),
        ({"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}, SIGMOIDS),
        ({"expertParallel": 2}, {**SIGMOIDS, "expertGroups": 4, "groupsPerToken": 2}),
    ],
)
def test_experts_move_between_ranks(tmp_path, layout, router):
    run_ranks(tmp_path, 4, "experts_move", gpus_per_node=2, layout=layout, router=router)


def test_loads_that_a_plan_was_made_for():
    from moeplan.torch.placement import busiest_ratio, planned_shares
    from moeplan.v1 import workload_pb2

    layer = workload_pb2.Layer(experts=4)
    assert planned_shares(workload_pb2.Workload(layer=layer)) == [1, 1, 1, 1]
    skewed = workload_pb2.Workload(layer=layer, routing=workload_pb2.Routing(skew=1))
    assert planned_shares(skewed) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    counted = workload_pb2.Workload(layer=layer, routing=workload_pb2.Routing(tokens_per_expert=[5, 1, 2, 0]))
    assert busiest_ratio(planned_shares(counted), 2) == 1.5
    assert busiest_ratio(planned_shares(counted), 4) == 2.5
    assert busiest_ratio([0, 0], 2) == 1


def test_devices_that_are_not_there_are_refused(tmp_path):
    run_ranks(tmp_path, 1, "no_card_for_the_host")


def test_bad_input_is_named_and_the_job_goes_on(tmp_path):
    run_ranks(tmp_path, 4, "bad_input", gpus_per_node=2)


def test_ranks_that_pass_other_tokens_are_told(tmp_path):
    run_ranks(tmp_path, 4, "other_tokens", gpus_per_node=2)


@pytest.mark.parametrize("phase", ["forward", "backward", "parts"])
def test_a_lost_rank_is_named_within_the_deadline(tmp_path, phase):
    run_ranks(tmp_path, 4, "lost_rank", gpus_per_node=2, phase=phase, deadline_s=5)


def test_a_model_learns_beside_ddp_and_dataloaders(tmp_path):
    run_ranks(tmp_path, 4, "learns", gpus_per_node=2)


def test_pipeline_stages_need_not_keep_step(tmp_path):
    run_ranks(tmp_path, 4, "stages_apart", gpus_per_node=2, deadline_s=10)
