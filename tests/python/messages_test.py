"""Dicts to messages and back."""

import math

import pytest
from conftest import example

from moeplan import InvalidInput, messages
from moeplan.v1 import advice_pb2, plan_pb2, planner_service_pb2, profile_pb2, timeline_pb2, workload_pb2


def read(message, value):
    messages.read(message, value)
    return message


@pytest.mark.parametrize(
    "number, text",
    [
        # The shorter of both notations; of equally short ones the plain one.
        (0.0, "0"), (1.0, "1"), (-2.5, "-2.5"), (0.1, "0.1"), (1048576.0, "1048576"), (100000.0, "1e+05"),
        (10000.0, "10000"), (120000.0, "120000"), (1e6, "1e+06"), (1e22, "1e+22"), (1.5e300, "1.5e+300"),
        (0.001, "0.001"), (0.0001, "1e-04"), (0.00012, "0.00012"), (5e-324, "5e-324"),
        # A whole number has all of its digits, as printf has them, not zeros behind the shortest.
        (1.2345678901234567e20, "123456789012345667584"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_the_planner_writes_them(number, text):
    assert messages.number_text(number) == text
    assert float(text) == number


@pytest.mark.parametrize(
    "value, field, found, expected",
    [
        ({"layer": {"topk": 1}}, "layer.topk", "an unknown field (did you mean topK?)", "one of batch, sequenceLength"),
        ({"layer": {"batch": "1"}}, "layer.batch", 'the string "1"', "a whole number"),
        ({"layer": {"batch": 1.5}}, "layer.batch", "1.5", "a whole number"),
        ({"layer": {"batch": True}}, "layer.batch", "true", "a whole number"),
        ({"layer": {"batch": 2**31}}, "layer.batch", "2147483648", "a whole number from -2147483648 to 2147483647"),
        ({"layer": {"capacityFactor": math.nan}}, "layer.capacityFactor", "nan", "a finite number"),
        ({"layer": {"expertBias": 1}}, "layer.expertBias", "1", "true or false"),
        ({"layer": [1]}, "layer", "a list", "an object"),
        ({"dispatchCodec": "FP9"}, "dispatchCodec", 'the string "FP9"', "one of NONE, FP16, BF16, FP8, INT8, ZFP, FP8_BLOCKWISE"),
        ({"name": 3}, "name", "3", "a string"),
        ({"name": "\ud800"}, "name", "half a surrogate pair", "text"),
        ({"routing": {"tokensPerExpert": 3}}, "routing.tokensPerExpert", "3", "a list"),
        ({"routing": {"tokensPerExpert": [1, "x"]}}, "routing.tokensPerExpert[1]", 'the string "x"', "a number"),
        ({"layer": {"batch": object()}}, "layer.batch", "a Python object", "a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(value, field, found, expected):
    with pytest.raises(InvalidInput) as refused:
        read(workload_pb2.Workload(), value)
    assert (refused.value.field, refused.value.found) == (field, found)
    assert refused.value.expected.startswith(expected)
    assert str(refused.value) == f"{field}: found {found}, expected {refused.value.expected}"


def test_of_two_alternatives_one_is_refused():
    with pytest.raises(InvalidInput) as refused:
        read(profile_pb2.EfficiencyPoint(), {"bytes": 1, "flops": 2, "efficiency": 0.5})
    assert refused.value.found == "both bytes and flops"


def test_none_is_absent_and_numpy_counts():
    numpy = pytest.importorskip("numpy")
    asked = {"layer": {"batch": numpy.int64(3), "capacityFactor": numpy.float32(1.25)}, "zeroStage": None}
    message = read(workload_pb2.Workload(), asked)
    assert (message.layer.batch, message.layer.capacity_factor) == (3, 1.25)
    assert not message.HasField("zero_stage")


def test_printing_gives_every_scalar_and_list_and_leaves_out_what_is_absent():
    printed = messages.to_dict(read(workload_pb2.Workload(), {"layer": {"batch": 1}, "routing": {}}))
    assert printed["routing"] == {"tokensPerExpert": []}
    assert printed["dispatchCodec"] == "NONE" and printed["allowLossy"] is False and printed["name"] == ""
    assert printed["layer"]["topK"] == 0
    assert not {"layout", "zeroStage", "gradientBytes"} & set(printed)


def test_a_profile_and_a_plan_survive_the_round_trip():
    profile = read(profile_pb2.Profile(), example("profile-8x8.json"))
    assert read(profile_pb2.Profile(), messages.to_dict(profile)) == profile
    plan = read(plan_pb2.Plan(), {"schedule": "MONTA_O3", "chunkShares": [0.5, 0.375, 0.125], "predictedTimeS": 1e-3})
    assert read(plan_pb2.Plan(), messages.to_dict(plan)) == plan


def test_foreign_json_stands_as_it_is():
    config = {"model_type": "mixtral", "n": 8, "deep": {"list": [1.5, "x", None, True, {}]}, "none": None}
    request = read(planner_service_pb2.StepRequest(), {"model": config})
    assert messages.to_dict(request)["model"] == config
    assert messages.to_dict(request)["model"]["deep"]["list"][3] is True
    with pytest.raises(InvalidInput) as refused:
        read(planner_service_pb2.StepRequest(), {"model": {"a": [1, object()]}})
    assert refused.value.field == "model.a[1]"


def test_compact_text_is_in_the_order_of_the_fields_with_short_numbers():
    plan = read(timeline_pb2.TaskTiming(), {"endS": 1e-4, "task": 'é"\n\x01', "startS": 2})
    expected = '{"task":"é\\"\\n\\u0001","kind":"OTHER","stream":"UNSPECIFIED","chunk":0,"startS":2,"endS":1e-04}'
    assert messages.compact_json(plan) == expected


def test_a_newer_planners_value_without_a_name_is_its_number():
    step = advice_pb2.DispatcherStep()
    step.dispatcher = 4711
    assert messages.to_dict(step)["dispatcher"] == 4711
    assert read(advice_pb2.DispatcherStep(), messages.to_dict(step)) == step
    with pytest.raises(InvalidInput):
        read(advice_pb2.DispatcherStep(), {"dispatcher": 1})  # It has a name.
