"""Asks a moeplan planner how a Mixture-of-Experts training job should run.

    planner = moeplan.Planner("127.0.0.1:7070", cluster={"nodes": 2, "gpusPerNode": 8})
    answer = planner.plan(workload)
    answer.best, answer.origin, answer.why

Importing connects to nothing, starts nothing and loads no torch. docs/python.md tells how it is used.
"""

from moeplan.errors import Error, Infeasible, InvalidInput, PeerLost, PlannerError, UnavailableHere
from moeplan.live import Change, StepWatch
from moeplan.planner import Answer, Planner, PlanWatch

__all__ = [
    "Answer",
    "Change",
    "Error",
    "Infeasible",
    "InvalidInput",
    "PeerLost",
    "PlanWatch",
    "Planner",
    "PlannerError",
    "StepWatch",
    "UnavailableHere",
]
