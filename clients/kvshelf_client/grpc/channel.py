"""A channel to one service: its options, what every call of it carries, and the ways to call."""

import os
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc.experimental import ChannelOptions

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.grpc.codec import GrpcRequest
from kvshelf_client.request_ids import HEADER
from kvshelf_client.tracing import trace_fields
from kvshelf_client.transport import Tls, TransportOptions

_SERVICE = "/kvshelf.v1.Kvshelf/"
_MAX_ANSWER_BYTES = 64 << 20
_RECONNECT_MILLISECONDS = 500
"""A service that is back is found within so long. gRPC by itself waits up to two minutes."""
_FRAME_BYTES = 1 << 20
_CLOSE_SECONDS = 1.0


class Channel:
    """Calls verbs by name, with a deadline. Threads may share it.

    Args:
        url: ``grpc://host:port`` or ``grpcs://host:port``.

    Raises:
        ValueError: the address is none. OSError: a file of the TLS settings cannot be read.
    """

    def __init__(self, url: str, options: TransportOptions) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or parts.port is None or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no gRPC address; it looks like grpc://127.0.0.1:8711")
        self.where = f"{parts.scheme}://{parts.netloc}"
        arguments = _options(options)
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(parts.netloc, _credentials(options.tls), arguments)
        else:
            self._channel = grpc.insecure_channel(parts.netloc, arguments)
        self._metadata = (("authorization", f"Bearer {options.token}"),) if options.token else ()
        self._process = os.getpid()

    def ask(self, request: GrpcRequest, deadline: Deadline, call_id: str) -> Any:
        """Begin a call with one message and one answer; it is a ``grpc.Future`` of the encoded answer."""
        return self._begin(
            self._usable().unary_unary(_path(request), None, None).future, request.message, deadline, call_id
        )

    def download(self, request: GrpcRequest, deadline: Deadline, call_id: str) -> Any:
        """Begin a call with one message and a stream of encoded answers; it is their iterator, and a ``grpc.Call``."""
        return self._begin(self._usable().unary_stream(_path(request), None, None), request.message, deadline, call_id)

    def upload(self, request: GrpcRequest, messages: Iterator[bytes], deadline: Deadline, call_id: str) -> Any:
        """Begin a call with a stream of encoded messages. It is the iterator of its answers, and a ``grpc.Call``."""
        return self._begin(self._usable().stream_stream(_path(request), None, None), messages, deadline, call_id)

    def close(self) -> None:
        """Let go of it. Calls under way fail, later ones too."""
        # gRPC waits for the last event of each call, and there are calls whose last event never comes.
        closing = threading.Thread(target=self._channel.close, name="kvshelf-grpc-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _begin(self, begin: Callable[..., Any], sent: Any, deadline: Deadline, call_id: str) -> Any:
        """Begin a call, with what every call carries."""
        if deadline.is_over:  # Many may have come at a time: what is too late costs the others nothing.
            raise DeadlineError("the time was up before the call was begun")
        metadata = (*self._metadata, (HEADER, call_id), *trace_fields())
        try:
            return begin(sent, timeout=deadline.remaining_seconds, metadata=metadata)
        except ValueError as error:
            raise UnreachableError(f"the client was closed: {error}") from error

    def _usable(self) -> grpc.Channel:
        if os.getpid() != self._process:
            raise UnreachableError("a gRPC client does not outlive a fork: make one in the new process")
        return self._channel


def _path(request: GrpcRequest) -> str:
    return _SERVICE + request.verb


def _options(options: TransportOptions) -> list[tuple[str, Any]]:
    return [
        # A fetch has a thread that reads it, and needs none of the channel's that hands its messages over.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
        ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
        ("grpc.http2.max_frame_size", _FRAME_BYTES),
        ("grpc.min_reconnect_backoff_ms", max(1, int(options.connect_seconds * 1000))),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MILLISECONDS // 5),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MILLISECONDS),
        # A channel's trouble is its own: channels of one process would share connections otherwise.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    """What is trusted, and the certificate to show. Without a file that is what the system trusts."""
    if tls.ca_file is None:
        trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
        roots = "".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode()
    else:
        roots = Path(tls.ca_file).read_bytes()
    key, chain = (None if name is None else Path(name).read_bytes() for name in (tls.key_file, tls.certificate_file))
    return grpc.ssl_channel_credentials(roots, key, chain)
