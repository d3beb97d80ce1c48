"""moeplan.torch.scheduled: gradients, order and refusals, on ranks as processes."""

import pytest
from ranks import run_ranks

pytest.importorskip("torch", reason="torch is missing (Debian: python3-torch)")


@pytest.mark.parametrize("name", ["gradients", "special_models", "distributed_data_parallel", "order", "refusals"])
def test_steps_under_a_plan(tmp_path, name):
    run_ranks(tmp_path, 2, name, program="scheduled_ranks.py", gpus_per_node=1)
