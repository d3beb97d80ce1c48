"""The one way in which the package talks to a planner: gRPC with a deadline, a token and TLS.

Channel options are those of planner/client/channel.cc, and so are the words of the errors.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
import time
from typing import Any, Mapping

import grpc
from google.protobuf.message import DecodeError

from moeplan.errors import Error, Infeasible, InvalidInput, PlannerError, mismatch
from moeplan.rpc import error_details_pb2
from moeplan.v1 import planner_service_pb2_grpc

MOST_MESSAGE_BYTES = 64 << 20
# The planner adds this to the trailer of every error, so that its errors are told from those of the transport.
_ANSWERED_BY_PLANNER = "moeplan-planner"
_DETAILS = "grpc-status-details-bin"
_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    # A planner never compresses, and whoever poses as one must not fill this process's memory.
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # A planner whose machine is gone says nothing; streams would wait for it for good.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Connections of one process would share the pause after a refused one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


class Connection:
    """Calls the methods of one planner. Opened by the first call, and anew after it was lost.

    Any thread may call any method at the same time. Must not be used in a forked child once it has been opened.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
    ) -> None:
        self.address = address
        self._token = token or ""
        self._tls = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._opened_by = 0  # Process.

    def open(self) -> tuple[grpc.Channel, Any]:
        """The channel and its stub. Raises InvalidInput where the options are wrong; connects to nothing."""
        with self._lock:
            if self._channel is None:
                self._channel = self._new_channel()
                self._stub = planner_service_pb2_grpc.PlannerServiceStub(self._channel)
                self._opened_by = os.getpid()
            elif self._opened_by != os.getpid():
                raise PlannerError("the connection was opened before fork(), and gRPC does not survive that", "ABORTED")
            return self._channel, self._stub

    def call(self, method: str, request: Any, deadline_s: float) -> Any:
        """Calls a method of one answer. Raises InvalidInput, Infeasible or PlannerError within ``deadline_s``."""
        _check_size(request)
        end = time.monotonic() + deadline_s
        for last in (False, True):
            channel, stub = self.open()
            left_s = max(end - time.monotonic(), 1e-3)
            try:
                return getattr(stub, method)(request, timeout=left_s, metadata=self._metadata())
            except ValueError as error:  # So gRPC says that another thread has closed the channel.
                raise PlannerError(f"the planner at {self.address}: {error}", "CANCELLED") from None
            except grpc.RpcError as error:
                failure = _error_of(error, self.address, deadline_s)
                if _answered(error):
                    raise failure from None
                self.forget(channel)
                # A connection that was lost since the last call, or a first one on a busy machine, may do the next
                # time. Every method is safe to repeat.
                if last or failure.code != "UNAVAILABLE" or time.monotonic() >= end:
                    raise failure from None
        raise AssertionError("unreachable")

    def stream(self, method: str, request: Any) -> Stream:
        """Begins a method of many answers. Raises InvalidInput where the options are wrong; other errors come later."""
        _check_size(request)
        channel, stub = self.open()
        return Stream(self, channel, getattr(stub, method)(request, metadata=self._metadata()))

    def close(self) -> None:
        """Ends the connection and every call in progress."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None and self._opened_by == os.getpid():
            channel.close()

    def forget(self, channel: grpc.Channel) -> None:
        """The next call opens another channel, without the pause that gRPC makes before it tries an old one again."""
        # Not closed: other threads may have calls in it, and the last of them ends it.
        with self._lock:
            if self._channel is channel:
                self._channel = None

    def _new_channel(self) -> grpc.Channel:
        host = _host_of(self.address)
        if self._token and not self._tls["tls_ca"] and not _is_loopback(host):
            raise mismatch(
                "token", f"one for {self.address} without TLS, where others can read it on the way", "tls_ca beside it"
            )
        if not all("!" <= letter <= "~" for letter in self._token):
            raise mismatch(
                "token",
                "a space, line break or other byte that no token has",
                "what `moeplan token create` printed",
            )
        # The scheme is written out because "HOST:PORT" may read as one.
        target = f"dns:///{self.address}"
        credentials = _credentials(self._tls)
        if credentials is None:
            return grpc.insecure_channel(target, _OPTIONS)
        return grpc.secure_channel(target, credentials, _OPTIONS)

    def _metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._token}")] if self._token else []


class Stream:
    """The answers of one call, as they come. One thread takes them; any may cancel."""

    def __init__(self, connection: Connection, channel: grpc.Channel, call: Any) -> None:
        self._connection, self._channel, self._call = connection, channel, call

    def next(self) -> Any | None:
        """Waits for the next answer; None: the planner ended the call. Raises what Connection.call does."""
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            if not _answered(error):
                self._connection.forget(self._channel)
            raise _error_of(error, self._connection.address) from None

    def cancel(self) -> None:
        self._call.cancel()


def _error_of(error: grpc.RpcError, address: str, deadline_s: float | None = None) -> Error:
    """What the package raises for a call that failed."""
    code, message = error.code(), error.details() or ""
    if _answered(error):
        info = _info_of(error)
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE):
            parts = info.metadata
            return InvalidInput(message, parts["field"], parts["found"], parts["expected"])
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            return Infeasible(message)
        return PlannerError(message, code.name, info.reason)
    if code == grpc.StatusCode.UNAVAILABLE:
        start = f"start one with `moeplan serve --db DB --grpc {address}`"
        message = f"no planner answers at {address}; {start} ({message})"
    elif code == grpc.StatusCode.DEADLINE_EXCEEDED and deadline_s is not None:
        message = f"the planner at {address} did not answer within {deadline_s:g} s"
    else:
        message = f"the planner at {address}: {message}"
    return PlannerError(message, code.name)


def _trailer(error: grpc.RpcError) -> Mapping[str, Any]:
    return {item[0]: item[1] for item in error.trailing_metadata() or ()}


def _answered(error: grpc.RpcError) -> bool:
    return _ANSWERED_BY_PLANNER in _trailer(error)


def _info_of(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    try:
        status = error_details_pb2.ErrorStatus.FromString(_trailer(error).get(_DETAILS, b""))
        for detail in status.details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                info.ParseFromString(detail.value)
    except DecodeError:
        pass  # A planner of the future, or one that is broken.
    return info


def _check_size(request: Any) -> None:
    size = request.ByteSize()
    if size > MOST_MESSAGE_BYTES:
        raise mismatch("request", f"{size} bytes", f"at most {MOST_MESSAGE_BYTES}; send it in parts")


def _host_of(address: str) -> str:
    parts = re.fullmatch(r"(?:\[([A-Za-z0-9._%:-]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", address)
    if parts is None or int(parts[3]) > 65535:
        raise mismatch("planner", f"'{address}'", "HOST:PORT such as 127.0.0.1:7070")
    return parts[1] or parts[2]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(tls: Mapping[str, Any]) -> grpc.ChannelCredentials | None:
    if bool(tls["tls_cert"]) != bool(tls["tls_key"]):
        raise mismatch("tls_cert, tls_key", "one without the other", "both or neither")
    if not tls["tls_ca"]:
        if tls["tls_cert"]:
            raise mismatch("tls_ca", "none", "the authority of the planner's certificate beside tls_cert")
        return None
    return grpc.ssl_channel_credentials(*(_pem(option, tls[option]) for option in ("tls_ca", "tls_key", "tls_cert")))


def _pem(option: str, path: Any) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        text = b""
    # gRPC would not say what is wrong with it.
    if b"-----BEGIN" not in text:
        raise mismatch(option, f"{path}, no PEM that can be read", "a file that begins with -----BEGIN")
    return text
