"""What the package raises. Every message says which field is wrong, what was found and what was expected."""

from __future__ import annotations

__all__ = ["Error", "Infeasible", "InvalidInput", "PeerLost", "PlannerError", "UnavailableHere"]


class Error(Exception):
    """The base of all. ``code`` is the name of the gRPC status, such as "NOT_FOUND"."""

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code


class InvalidInput(Error, ValueError):
    """The question is wrong, and no planner would answer it.

    ``field`` is the JSON path of what is wrong ("layer.topK"), beside ``found`` and ``expected``; all three are empty
    where the planner names no field.
    """

    def __init__(self, message: str, field: str = "", found: str = "", expected: str = "") -> None:
        super().__init__(message, "INVALID_ARGUMENT")
        self.field = field
        self.found = found
        self.expected = expected


class Infeasible(Error):
    """The question is sound, and the answer is "no": nothing fits."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "FAILED_PRECONDITION")


class PlannerError(Error):
    """Anything else: no planner ("UNAVAILABLE"), a slow one ("DEADLINE_EXCEEDED"), no such profile ("NOT_FOUND"), ...

    ``reason`` is the planner's own word for it, such as "NO_TOKEN" or "QUEUE_FULL"; empty where no planner spoke.
    """

    def __init__(self, message: str, code: str = "UNKNOWN", reason: str = "") -> None:
        super().__init__(message, code)
        self.reason = reason


class PeerLost(Error):
    """A rank died, closed its connection or missed the deadline; the message also names the task.

    The world is spent: every later call raises the same. ``rank`` is that rank, None where the message names none.
    """

    def __init__(self, message: str, code: str = "PEER_LOST", rank: int | None = None) -> None:
        super().__init__(message, code)
        self.rank = rank


class UnavailableHere(Error):
    """This process cannot run layers: a library is missing, it was forked off the one that joined, ..."""

    def __init__(self, message: str, code: str = "UNAVAILABLE") -> None:
        super().__init__(message, code)


def mismatch(field: str, found: str, expected: str) -> InvalidInput:
    """The error of one field, worded as the planner words it. An empty ``field`` is the whole."""
    return InvalidInput(f"{field}{': ' if field else ''}found {found}, expected {expected}", field, found, expected)
