"""Every method of Planner, against a real planner with a stored profile."""

import copy
import json
import threading
import time

import pytest
from conftest import SOURCE, example, first, run_moeplan

import moeplan

JOB = {"model_name": "qwen3-30b-a3b", "hardware": "h100-sxm:8x8", "global_batch": 512, "sequence_length": 4096}


def with_layer(workload, **fields):
    return {**workload, "layer": {**workload["layer"], **fields}}


def test_a_plan_is_what_the_command_line_prints(server, planner, workload, tmp_path):
    answer = planner.plan(workload)
    (tmp_path / "w.json").write_text(json.dumps(workload))
    printed = run_moeplan("plan", "--planner", server.address, "--workload", tmp_path / "w.json", "--json").stdout
    assert answer.response == json.loads(printed)
    assert answer.best == answer.response["best"] and answer.best["timeline"]
    assert (answer.origin, answer.why) == ("PLANNER", "")
    assert answer.answered_at.endswith("Z")


def test_a_plan_of_a_profile_by_name_by_value_and_with_other_fields(planner, workload):
    newest = planner.plan(workload).response
    assert planner.plan(workload, "example-8x8-round-numbers").response == newest
    by_value = planner.plan(workload, example("profile-8x8.json")).response
    assert by_value["profileVersion"] == 0 and by_value["best"] == newest["best"]
    brief = planner.plan(workload, view="BEST", budget_nodes=1000)
    assert brief.best["timeline"] == [] and brief.best["schedule"] == newest["best"]["schedule"]


def test_the_planners_errors_keep_their_parts(planner, workload):
    with pytest.raises(moeplan.InvalidInput) as wrong:
        planner.plan(with_layer(workload, topK=9))
    error = wrong.value
    assert (error.field, error.found, error.expected) == ("layer.topK", "9", "at most layer.experts, which is 8")
    assert str(error) == "layer.topK: found 9, expected at most layer.experts, which is 8"
    assert error.code == "INVALID_ARGUMENT"
    with pytest.raises(moeplan.InvalidInput) as wrong:
        planner.plan({**workload, "layer": {"topk": 1}})
    assert wrong.value.field == "layer.topk"
    with pytest.raises(moeplan.InvalidInput) as wrong:
        planner.step(nodes=4)
    assert wrong.value.field == "nodes"
    with pytest.raises(moeplan.PlannerError) as missing:
        planner.plan(workload, "nobody")
    assert (missing.value.code, missing.value.reason) == ("NOT_FOUND", "NOT_FOUND")
    assert "nobody" in str(missing.value)
    assert not isinstance(missing.value, moeplan.InvalidInput)


def test_where_no_plan_fits_the_answer_is_no(planner, workload):
    small = example("profile-8x8.json")
    small["cluster"]["deviceMemoryBytes"] = 1e6
    with pytest.raises(moeplan.Infeasible) as infeasible:
        planner.plan(workload, small)
    assert "404848640 bytes" in str(infeasible.value)
    with pytest.raises(moeplan.Infeasible):
        planner.advise(**{**JOB, "hardware": "l40s:1x1", "model_name": "deepseek-v3"})


def test_where_no_plan_can_be_priced_only_the_rules_answer(planner, workload):
    bare = example("profile-8x8.json")
    bare["kernels"] = [kernel for kernel in bare["kernels"] if kernel["kernel"] != "EXPERT_GEMM"]
    answer = planner.plan(workload, bare)
    assert answer.best == {} and answer.response["rules"]["parm"]["choice"] == "PARM_S1"


def test_a_step_is_what_the_command_line_prints(server, planner):
    layout = {"expertParallel": 8, "pipelineParallel": 2}
    response = planner.step(**JOB, gpus=64, layout=layout)
    printed = run_moeplan(
        "step", "--hardware", "h100-sxm:8x8", "--model", "qwen3-30b-a3b", "--gpus", 64, "--global-batch", 512,
        "--sequence-length", 4096, "--layout", json.dumps(layout), "--json",
    ).stdout  # fmt: skip
    result, expected = response["result"], json.loads(printed)
    assert {key: result[key] for key in expected if key != "gain"} == expected
    assert result["stepTimeS"] == pytest.approx(sum(part["exposedS"] for part in result["parts"]))


def test_a_model_may_be_its_configuration(planner):
    config = json.loads((SOURCE / "deploy" / "models" / "qwen3-30b-a3b.json").read_text())
    named = planner.step(**JOB, gpus=64, layout={"expertParallel": 8, "pipelineParallel": 2})
    fields = {key: value for key, value in JOB.items() if key != "model_name"}
    given = planner.step(**fields, model=config, gpus=64, layout={"expertParallel": 8, "pipelineParallel": 2})
    assert given["result"] == named["result"]


def test_the_layer_of_a_config_is_planned_with_its_router(planner):
    config = json.loads((SOURCE / "deploy" / "models" / "deepseek-v3.json").read_text())
    imported = planner.import_model(config)
    assert (imported["layers"], imported["moeLayers"]) == (61, 58)
    layer = imported["workload"]["layer"]
    assert (layer["experts"], layer["topK"], layer["capacityFactor"], layer["sharedHiddenDim"]) == (256, 8, 0, 2048)
    router = {"scoreFunction": "SIGMOID", "rawWeights": False, "weightScale": 2.5, "expertGroups": 8, "groupsPerToken": 4}
    assert layer["router"] == {**router, "correctionBias": True, "bias": False, "weighsInput": False}
    workload = {**imported["workload"], "layout": {"expertParallel": 64}, "phase": "TRAINING"}
    planned = planner.plan(with_layer(workload, sequenceLength=4096))
    assert planned.response["workload"]["layer"]["router"] == layer["router"]
    assert imported["routerNote"] == ""
    assert planner.import_model({**config, "scoring_func": "tanh"})["routerNote"] == "scores are tanh"
    with pytest.raises(moeplan.InvalidInput) as wrong:
        planner.import_model({**config, "routed_scaling_factor": 0})
    assert "routed_scaling_factor" in str(wrong.value)


def test_layouts_sweeps_dispatchers_and_names(planner, workload):
    layouts = planner.layouts(**JOB, gpus=64, top=3)["result"]["layouts"]
    times = [layout["stepTimeS"] for layout in layouts]
    assert len(times) == 3 and times == sorted(times)

    sweep = planner.what_if(workload=workload, axes=["layer.sequenceLength=4096,8192"])
    assert [point["row"]["fields"] for point in sweep["points"]] == [
        {"layer.sequenceLength": 4096}, {"layer.sequenceLength": 8192},
    ]  # fmt: skip
    assert sweep["points"][0]["row"]["predictedTimeS"] == planner.plan(workload).best["predictedTimeS"]

    crossover = planner.dispatchers(
        **{**JOB, "hardware": "h100-sxm"},
        gpus=64,
        layout={"recompute": "SELECTIVE", "recomputeModules": ["MOE_ACT"]},
        axis="expertParallel=8,16",
    )["result"]
    assert [point["value"] for point in crossover["points"]] == [8, 16]
    assert all(point["best"] in ("ALL_TO_ALL", "ALL_GATHER", "DEEPEP", "HYBRID_EP") for point in crossover["points"])

    named = planner.named()
    assert "qwen3-30b-a3b" in named["models"]
    assert "h100-sxm" in [one["name"] for one in named["hardware"]]
    megatron = next(one for one in named["targets"] if one["name"] == "megatron")
    assert megatron["live"] == ["recompute", "recomputeLayers"] and not megatron["takesFile"]


def test_advice_for_a_job(planner):
    mine = json.dumps({"expertParallel": 8, "pipelineParallel": 2, "recompute": "FULL"})
    result = planner.advise(**JOB, mine=mine, measured_step_s=5.0)["result"]
    assert result["softwareFactor"] == pytest.approx(5.0 / result["mine"]["step"]["stepTimeS"])
    assert result["gain"] == pytest.approx(result["mine"]["step"]["stepTimeS"] / result["step"]["stepTimeS"], rel=1e-3)
    assert "--expert-model-parallel-size" in result["export"]["layoutArguments"]


def test_a_deadline_of_one_call(planner):
    began = time.monotonic()
    with pytest.raises(moeplan.PlannerError) as late:
        planner.advise(**JOB, deadline_s=0.2)
    assert late.value.code == "DEADLINE_EXCEEDED"
    assert time.monotonic() - began < 1
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(moeplan.InvalidInput) as refused:
            planner.named(deadline_s=wrong)
        assert refused.value.field == "deadline_s"


def test_a_run_is_reported_once_however_often_it_is_sent(serve, workload):
    server = serve()
    with moeplan.Planner(server.address) as planner:
        answer = planner.plan(workload)
        report = {"plan": answer.response, "ranks": [{"rank": 0, "timeline": answer.best["timeline"]}]}
        told = planner.report_run({**report, "requestId": "run-1"})
        assert told["measuredTimeS"] == pytest.approx(answer.best["predictedTimeS"])
        assert {cost["ratio"] for cost in told["costs"]} == {1.0}
        assert planner.report_run({**report, "requestId": "run-1"})["costs"] == []
        # One that is not named is another one each time.
        assert planner.report_run(report)["costs"] != []
        assert len(server.call("ListRuns", {})["runs"]) >= 1


def slower_nodes(factor):
    """The example profile with all-to-alls inside nodes that take longer."""
    profile = example("profile-8x8.json")
    for entry in profile["collectives"]:
        if entry["collective"] == "ALL_TO_ALL" and entry["groupSize"] == entry["ranksPerNode"]:
            entry["efficiency"]["peakBytesPerS"] /= factor
    return profile


def test_a_watch_tells_a_better_plan_when_the_profile_changes(serve, workload):
    server = serve()
    with moeplan.Planner(server.address) as planner:
        held = planner.plan(workload)
        with planner.watch(held, min_gain=0.01) as watch:
            timer = threading.Timer(0.3, server.put_profile, [slower_nodes(8)])
            timer.start()
            better = first(watch)
            timer.join()
        assert better.origin == "PLANNER" and "version 2" in better.why
        assert better.best["schedule"] != held.best["schedule"] or better.best["chunks"] != held.best["chunks"]
        assert better.response["profileVersion"] == 2
        assert list(watch) == [], "a closed watch ends"


def test_a_watch_outlives_its_planner(serve, workload):
    server = serve()
    with moeplan.Planner(server.address) as planner:
        watch = planner.watch(planner.plan(workload), min_gain=0.01)
        watch._pause_s = 0.05
        found = []
        thread = threading.Thread(target=lambda: found.append(first(watch)))
        thread.start()
        time.sleep(0.2)
        server.stop()
        time.sleep(0.3)
        again = serve(profile=False, grpc=server.address)
        again.put_profile(slower_nodes(8))
        thread.join(4)  # gRPC itself would try the lost connection later.
        assert found and found[0].response["profileVersion"] == 2
        # The next connection begins with what was told, which is not told again.
        watch._pause_s = 0.05
        again.stop()
        serve(profile=False, grpc=server.address)
        with pytest.raises(StopIteration):
            first(watch, 1.0)


def test_a_watch_of_what_cannot_be_watched_is_refused_and_one_that_is_closed_ends(planner, workload):
    with pytest.raises(moeplan.InvalidInput) as refused:
        first(planner.watch(planner.plan(workload, example("profile-8x8.json"))))
    assert refused.value.field == "request.profile"
    with pytest.raises(moeplan.InvalidInput) as refused:
        planner.watch(moeplan.Answer({}, {}, "PLANNER"))
    assert refused.value.field == "answer"
    watch = planner.watch(planner.plan(workload))
    ended = []
    thread = threading.Thread(target=lambda: ended.extend(watch))
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive()
    watch.close()
    thread.join(5)
    assert not thread.is_alive() and ended == []


def test_answers_come_to_many_threads_at_once(planner, workload):
    schedules = []

    def ask(batch):
        schedules.append(planner.plan(with_layer(workload, batch=batch)).best["schedule"])

    threads = [threading.Thread(target=ask, args=(1 + i % 3,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(schedules) == 12


def test_a_planner_that_was_restarted_is_found_again(serve, workload):
    server = serve()
    with moeplan.Planner(server.address) as planner:
        before = planner.plan(workload)
        server.stop()
        serve(profile=False, grpc=server.address)
        assert planner.plan(workload).response == before.response


def test_the_workload_is_left_as_it_was(planner, workload):
    before = copy.deepcopy(workload)
    planner.plan(workload)
    assert workload == before
