"""moeplan.torch.replace on ranks as processes, against the blocks as they were."""

import pytest

torch = pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")

from ranks import run_ranks  # noqa: E402


@pytest.mark.parametrize(
    "schedule, layout",
    [
        ("BASELINE", {"expertParallel": 4}),
        ("PARM_S1", {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}),
        ("MONTA_O3", {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}),
        ("PIPELINE", {"expertParallel": 2}),
    ],
)
def test_a_model_learns_the_same(tmp_path, schedule, layout):
    arguments = {"schedule": schedule, "layout": layout}
    run_ranks(tmp_path, 4, "learns_the_same", program="replace_ranks", gpus_per_node=2, **arguments)


ALONE = {"expertParallel": 4}
TOGETHER = {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}


@pytest.mark.parametrize(
    "kind, schedule, layout",
    [
        ("deepseek_v3", "BASELINE", ALONE),
        ("deepseek_v3", "PARM_S1", TOGETHER),
        ("deepseek_v3", "MONTA_O3", TOGETHER),
        ("gpt_oss", "PARM_S1", TOGETHER),
        ("gpt_oss", "PIPELINE", ALONE),
        ("llama4", "PARM_S1", TOGETHER),
        ("llama4", "MONTA_O3", TOGETHER),
        ("olmoe", "PARM_S2", TOGETHER),
    ],
)
def test_models_with_other_routers_learn_the_same(tmp_path, kind, schedule, layout):
    arguments = {"kind": kind, "schedule": schedule, "layout": layout}
    run_ranks(tmp_path, 4, "other_routers", program="replace_ranks", gpus_per_node=2, **arguments)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_models_of_transformers_learn_the_same(tmp_path, name, ranks, device):
    pytest.importorskip("transformers", reason="transformers is missing")
    run_ranks(tmp_path, ranks, "published", program="replace_ranks", kind=name, device=device)


def test_logits_learn_too(tmp_path):
    run_ranks(tmp_path, 2, "logits_learn_too", program="replace_ranks")


def test_state_stays(tmp_path):
    run_ranks(tmp_path, 2, "state_stays", program="replace_ranks")


def test_blocks_that_compute_something_else_are_found_out(tmp_path):
    run_ranks(tmp_path, 2, "compared", program="replace_ranks")


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path):
    run_ranks(tmp_path, 2, "refusals", program="replace_ranks")
