"""The callback of a training job: what it asks, what it tells, and that it never holds the job up."""

import logging
import statistics
import time

import pytest

import moeplan

GPT_OSS = {
    "model_name": "gpt-oss-20b",
    "hardware": "h100-sxm:1x8",
    "gpus": 8,
    "global_batch": 64,
    "sequence_length": 4096,
}
LLAMA = {**GPT_OSS, "model_name": "llama3-8b"}
# Spelt out as `moeplan advise` prints them, so that what differs is what changes.
GPT_OSS_FLAGS = """
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --context-parallel-size 1
  --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --micro-batch-size 2 --global-batch-size 64
  --seq-length 4096 --max-position-embeddings=4096 --moe-token-dispatcher-type alltoall --bf16
  --use-distributed-optimizer --overlap-grad-reduce  # Megatron's own words.
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"""


def feed(watch, seconds, limit_s=30.0):
    """Steps of those seconds, again and again, until there is a change."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for one in seconds:
            change = watch.step(one)
            if change is not None:
                return change
        time.sleep(0.01)
    pytest.fail(f"no change within {limit_s} s, the last error is {watch.error!r}")


def settle(watch):
    """Waits until nothing is being asked."""
    end = time.monotonic() + 10
    while watch._asking and time.monotonic() < end:
        time.sleep(0.001)
    assert not watch._asking


# ---- With a real planner.


def test_a_job_changes_live_and_the_next_prediction_is_of_the_new_layout(planner):
    watch = moeplan.StepWatch(planner, job=GPT_OSS, mine=GPT_OSS_FLAGS, every=20, warmup=5, deadline_s=30)
    with watch:
        changes_live(watch)


def changes_live(watch):
    assert [watch.step(60.0) for _ in range(5)] == [None] * 5, "warm-up"
    # Twenty steps that count, of median 3.0; the checkpoint's does not.
    change = feed(watch, [2.9, 3.0, 3.1, 3.0, 2.9, 3.0, 3.1, 3.0, 40.0, 3.0])
    assert change.measured_s == 3.0
    assert change.live == {"recomputeLayers": (0, 11)}, "of 24 layers 11 are computed again: the others fit"
    assert change.settings == ["--recompute-method", "block", "--recompute-num-layers", "11"]
    assert change.remove == []
    assert 1 < change.gain_low < change.gain < change.gain_high
    assert change.predicted_s == pytest.approx(3.0), "the first layout's factor is its own"
    # What to start with next, and the whole advice of it.
    assert change.next_start["gain"] > change.gain
    assert change.next_start["softwareFactor"] == pytest.approx(3.0 / change.next_start["mine"]["step"]["stepTimeS"])
    assert "--expert-model-parallel-size" in change.next_start["export"]["arguments"]

    watch.applied(change)
    assert watch.history == [], "no step of the new layout counts yet"
    # The software factor stays, so that the step is predicted to shrink by the gain.
    expected_s = 3.0 / change.gain
    steps_s = [2.5, 2.6, 2.7]
    for _ in range(5):
        watch.step(60.0)
    after = feed(watch, steps_s)
    assert after.live == {} and after.settings == [] and after.gain == 1
    assert after.predicted_s == pytest.approx(expected_s, rel=1e-6)
    assert after.measured_s == pytest.approx(2.6)
    ((predicted_s, measured_s),) = watch.history
    assert predicted_s == pytest.approx(expected_s, rel=1e-6)
    assert measured_s == pytest.approx(2.6)


def test_what_must_go_is_told_and_the_layout_may_be_a_dict(planner):
    flags = GPT_OSS_FLAGS.replace("--micro-batch-size 2", "--micro-batch-size 1")
    with moeplan.StepWatch(planner, job=GPT_OSS, mine=flags, every=3, warmup=0, deadline_s=30) as watch:
        change = feed(watch, [3.0])
    assert change.live == {"recompute": ("FULL", "NONE")} and change.settings == []
    assert change.remove == [
        "--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1",
    ]  # fmt: skip
    layout = {"tensorParallel": 2, "recompute": "FULL"}
    with moeplan.StepWatch(planner, job=LLAMA, mine=layout, every=3, warmup=0, deadline_s=30) as watch:
        change = feed(watch, [4.0])
    assert change.live == {"recompute": ("FULL", "NONE")} and change.remove == []
    # Which settings the job has is not known, so all that say the layout are told.
    assert change.settings[change.settings.index("--tensor-model-parallel-size") + 1] == "2"


def test_a_gain_that_is_not_sure_is_no_live_change(planner):
    mine = GPT_OSS_FLAGS.replace("--micro-batch-size 2", "--micro-batch-size 4")
    with moeplan.StepWatch(planner, job=GPT_OSS, mine=mine, every=3, warmup=0, deadline_s=30) as watch:
        change = feed(watch, [3.0])
        assert change.gain > 1 > change.gain_low
        assert change.live == {} and change.settings == [] and change.remove == []
        with pytest.raises(moeplan.InvalidInput):
            watch.applied(change)


def test_a_training_system_that_changes_nothing_live_is_asked_for_the_next_start_alone(planner):
    mine = {"expertParallel": 8, "recompute": "FULL"}
    watch = moeplan.StepWatch(planner, job=GPT_OSS, mine=mine, to="torchtitan", every=3, warmup=0, deadline_s=30)
    with watch:
        change = feed(watch, [3.0])
    assert change.live == {} and change.gain is None and change.gain_low is None
    assert change.next_start["export"]["target"] == "torchtitan"


def test_a_planner_that_is_away_is_tried_again_and_the_job_never_notices(serve, caplog):
    server = serve(profile=False)
    server.stop()
    caplog.set_level(logging.WARNING, "moeplan")
    layout = {"tensorParallel": 2, "recompute": "FULL"}
    with moeplan.Planner(server.address) as planner:
        watch = moeplan.StepWatch(planner, job=LLAMA, mine=layout, every=2, warmup=0, retry_after_s=0.05)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert watch.step(4.0) is None
            time.sleep(0.005)
        assert "no planner answers" in str(watch.error)
        assert len(caplog.records) == 1, "said once, not at each try"
        serve(profile=False, grpc=server.address)
        assert feed(watch, [4.0]).live
        assert watch.error is None
        watch.close()


def test_a_planner_that_never_answers_does_not_slow_the_loop(mute):
    with moeplan.Planner(mute[0]) as planner:
        watch = moeplan.StepWatch(planner, job=LLAMA, mine="--micro-batch-size 1", every=2, warmup=0, deadline_s=1)
        slowest_s = 0.0
        for _ in range(50):
            began = time.monotonic()
            assert watch.step(4.0) is None
            slowest_s = max(slowest_s, time.monotonic() - began)
            time.sleep(0.002)
        watch.close()
        assert mute[1], "it was asked"
        assert slowest_s < 0.5


def test_a_job_that_is_wrong_is_refused_when_the_watch_is_made_and_otherwise_told(planner):
    with pytest.raises(moeplan.InvalidInput) as refused:
        moeplan.StepWatch(planner, job={**LLAMA, "gpu": 8}, mine="--micro-batch-size 1")
    assert refused.value.field == "gpu"
    with pytest.raises(moeplan.InvalidInput) as refused:
        moeplan.StepWatch(planner, job=LLAMA, mine="--micro-batch-size 1", every=0)
    assert refused.value.field == "every"
    # What only the planner can know does not reach the loop, either.
    watch = moeplan.StepWatch(planner, job=LLAMA, mine="--micro-batchsize 1", every=2, warmup=0)
    end = time.monotonic() + 10
    while watch.error is None and time.monotonic() < end:
        assert watch.step(4.0) is None
        time.sleep(0.01)
    watch.close()
    assert isinstance(watch.error, moeplan.InvalidInput) and "mine" in str(watch.error)


# ---- With a planner that says what the test wants.


class Said:
    """Stands for a planner: its advice is what the test says, and it keeps what it was asked."""

    def __init__(self, live_fields=("recompute",)):
        self.live_fields, self.asked = live_fields, []
        self.then = {"recompute": "NONE", "microBatch": 2}
        self.gain_low, self.step_s, self.mine_s, self.infeasible = 1.2, 1.5, 2.0, ()

    def named(self, deadline_s):
        return {"targets": [{"name": "megatron", "live": list(self.live_fields)}]}

    def advise(self, deadline_s, live_only=False, **asked):
        self.asked.append((live_only, asked))
        if live_only in self.infeasible:
            raise moeplan.Infeasible("nothing fits")
        return {
            "result": {
                "layout": self.then,
                "step": {"stepTimeS": self.step_s},
                "mine": {"layout": {"recompute": "FULL", "microBatch": 1}, "step": {"stepTimeS": self.mine_s}},
                "gain": 1.3,
                "gainLow": self.gain_low,
                "gainHigh": 1.4,
                "export": {"layoutArguments": ["--tp", "1", "--recompute", "none", "--flag"]},
                "removeArguments": ["--old"],
            }
        }


def watching(said, mine="--tp 1 --flag --recompute full", every=4, warmup=0, **options):
    job = {"model_name": "m", "global_batch": 1}
    return moeplan.StepWatch(said, job=job, mine=mine, every=every, warmup=warmup, **options)


def test_it_asks_both_questions_with_the_median_and_gives_each_answer_once():
    said = Said()
    watch = watching(said, warmup=2)
    told = []
    for seconds in [9.0, 9.0, 3.0, 1.0, 2.0, 2.5]:  # The first two are warm-up; of the others the median is 2.25.
        told.append(watch.step(seconds))
    assert told == [None] * 6
    settle(watch)
    change = watch.step(2.0)
    assert change.measured_s == 2.25
    assert [watch.step(2.0), watch.step(2.0)] == [None, None], "an answer is given once"
    assert [(live, asked["measured_step_s"], asked["to"], asked["mine"]) for live, asked in said.asked] == [
        (True, 2.25, "megatron", "--tp 1 --flag --recompute full"),
        (False, 2.25, "megatron", "--tp 1 --flag --recompute full"),
    ]
    # microBatch differs, too, but megatron cannot change it live.
    assert change.live == {"recompute": ("FULL", "NONE")}
    assert change.settings == ["--recompute", "none"] and change.remove == ["--old"]
    assert (change.gain, change.gain_low, change.gain_high) == (1.3, 1.2, 1.4)


def test_outliers_and_what_is_no_time_do_not_count():
    said = Said()
    watch = watching(said)
    for seconds in [2.0, 2.0, 7.0, float("nan"), 0.0, -1.0, float("inf"), 2.0]:
        watch.step(seconds)
    settle(watch)
    assert said.asked == [], "three of them count"
    assert feed(watch, [2.0]).measured_s == 2.0
    # Of 2.0, 2.1, 2.2 and 2.3 the median is 2.15; with the other two it would be 2.25.
    watch = watching(said)
    for seconds in [2.0, 2.1, 2.2, 2.3, 50.0, 60.0]:
        watch.step(seconds)
    assert watch._steps.median_s() == pytest.approx(2.15)
    # A job that is slower for good is no outlier for long: the median follows.
    watch = watching(said, every=50)
    for seconds in [1.0] * 30 + [5.0] * 80:
        watch.step(seconds)
    assert watch._steps.median_s() == 5.0


def test_the_window_is_the_last_steps_and_their_median_the_plain_one():
    watch = watching(Said(), every=10**6)
    steps = [1 + (i * 7919 % 1000) / 1000 for i in range(2000)]
    for seconds in steps:
        watch.step(seconds)
    assert watch._steps.median_s() == statistics.median(steps[-512:])
    assert watch._steps.counted == 2000


def test_predictions_use_the_factor_of_the_layout_before():
    said = Said()
    watch = watching(said)
    change = feed(watch, [3.0])
    # The factor is 3.0 / 2.0 = 1.5; of the new layout 1.5 · 1.5 = 2.25 is predicted.
    assert change.predicted_s == pytest.approx(3.0)
    watch.applied(change)
    said.mine_s = 1.5
    change = feed(watch, [2.4])
    assert change.predicted_s == pytest.approx(2.25) and change.measured_s == 2.4
    assert watch.history == [(pytest.approx(2.25), 2.4)]
    assert said.asked[-1][1]["mine"] == '{"recompute": "NONE", "microBatch": 2}'
    # Settings are those that differ from what the job has by now.
    assert change.settings == []
    # Next factor: 2.4 / 1.5 = 1.6; 1.6 · 1.5 = 2.4.
    watch.applied(change)
    assert watch.history == [(pytest.approx(2.25), 2.4)]
    assert feed(watch, [2.5]).predicted_s == pytest.approx(2.4)
    assert watch.history == [(pytest.approx(2.25), 2.4), (pytest.approx(2.4), 2.5)]


def test_an_answer_about_the_layout_before_is_dropped():
    said = Said()
    watch = watching(said)
    change = feed(watch, [3.0])
    asked = len(said.asked)
    while len(said.asked) == asked:
        assert watch.step(3.0) is None
        settle(watch)
    watch.applied(change)  # The next answer is there, about the old layout.
    assert watch.step(3.0) is None


def test_nothing_live_fits_or_nothing_at_all():
    said = Said()
    said.infeasible = (True,)
    change = feed(watching(said), [3.0])
    assert change.live == {} and change.gain is None and change.next_start is not None
    said.infeasible = (False,)
    change = feed(watching(said), [3.0])
    assert change.live and change.next_start is None
    said.infeasible = (True, False)
    watch = watching(said)
    for _ in range(5):
        watch.step(3.0)
    settle(watch)
    assert watch.step(3.0) is None and watch.error.code == "FAILED_PRECONDITION"


def test_a_gain_whose_interval_reaches_one_is_not_live():
    said = Said()
    said.gain_low = 1.0
    assert feed(watching(said), [3.0]).live == {}
    said.gain_low = 1.0001
    assert feed(watching(said), [3.0]).live


def test_after_a_failure_it_waits():
    said = Said()
    watch = watching(said, retry_after_s=30)
    now = [0.0]
    watch._clock = lambda: now[0]
    said.named = lambda deadline_s: 1 / 0  # Whatever goes wrong.
    for _ in range(20):
        assert watch.step(3.0) is None
        settle(watch)
    assert isinstance(watch.error, ZeroDivisionError)
    del said.named
    now[0] = 29.9
    for _ in range(8):
        assert watch.step(3.0) is None
        settle(watch)
    assert said.asked == []
    now[0] = 30.0
    assert feed(watch, [3.0]).live


def test_a_watch_that_is_closed_asks_no_more():
    said = Said()
    with watching(said) as watch:
        feed(watch, [3.0])
    settle(watch)
    count = len(said.asked)
    for _ in range(20):
        assert watch.step(3.0) is None
        settle(watch)
    assert len(said.asked) == count
