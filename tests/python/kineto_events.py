"""Writes what torch.profiler has recorded as Kineto's export_chrome_trace writes it.

Debian's PyTorch is built without Kineto: its profiler records the same events, and its own export leaves out shapes and
sequence numbers. Kineto writes one member of "traceEvents" for each event: operators as "cpu_op", what record_function
names as "user_annotation".
"""

import json


def write_trace(profile, path, rank, ranks, element):
    """``element``: the type of all tensors, which this profiler does not record; as "float"."""
    lines = [json.dumps(one) for one in _events(profile, element)]
    head = {"schemaVersion": 1, "record_shapes": 1, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": ranks}}
    text = json.dumps(head)[:-1] + ',\n"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _events(profile, element):
    step = 0
    for one in profile.profiler.function_events:
        name = one.name
        if name.startswith("ProfilerStep"):
            name, step = f"ProfilerStep#{step}", step + 1
        arguments = {"External id": one.id, "Ev Idx": one.id}
        if one.input_shapes:
            arguments["Input Dims"] = one.input_shapes
            arguments["Input type"] = [element if shape else "" for shape in one.input_shapes]
        if one.sequence_nr >= 0:
            arguments |= {"Sequence number": one.sequence_nr, "Fwd thread id": one.fwd_thread}
        yield {
            "ph": "X",
            "cat": "user_annotation" if one.scope == 7 else "cpu_op",  # RecordScope::USER_SCOPE
            "name": name,
            "pid": 1,
            "tid": one.thread,
            "ts": one.time_range.start,
            "dur": one.time_range.end - one.time_range.start,
            "args": arguments,
        }
