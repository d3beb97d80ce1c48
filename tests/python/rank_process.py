"""A rank that runs one case after another, each in a process group of its own, so that PyTorch is loaded once.

Reads a case a line from standard input, as ranks.py writes them, and answers "done" to each that passes. What a case
prints goes to the case's log; the first one that finds something wrong ends the process with 1.
"""

import datetime
import gc
import importlib
import json
import os
import sys

import torch
import torch.distributed as dist

import moeplan.torch

FIRST_SEED = torch.initial_seed()


def run(program, name, arguments):
    """A rank of a job whose store is the file STORE: calls the program's function with the world and the arguments."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['STORE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=60),
    )
    options = {key: arguments.pop(key) for key in ("gpus_per_node", "deadline_s", "device") if key in arguments}
    getattr(program, name)(moeplan.torch.init(**options), **arguments)
    if name != "lost_rank":
        dist.barrier()
    dist.destroy_process_group()


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        case = json.loads(line)
        os.environ.clear()
        os.environ.update(case["environment"])
        log = os.open(case["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        torch.set_num_threads(1)
        torch.manual_seed(FIRST_SEED)
        program = importlib.import_module(case["program"])
        getattr(program, "run", run)(program, case["name"], case["arguments"])
        sys.stdout.flush()
        gc.collect()  # Worlds and their connections end here, not in the next case.
        answers.write("done\n")


if __name__ == "__main__":
    main()
