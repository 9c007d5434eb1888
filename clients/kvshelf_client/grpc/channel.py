"""A channel to one service: its options, what every call of it carries, and the ways to call."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc.experimental import ChannelOptions

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import UnreachableError
from kvshelf_client.grpc.chunks import CHUNK_BYTES, pack_store_chunk
from kvshelf_client.grpc.codec import GrpcRequest
from kvshelf_client.request_ids import HEADER
from kvshelf_client.requests import Store
from kvshelf_client.tracing import trace_fields
from kvshelf_client.transport import Tls, TransportOptions
from kvshelf_client.upload import frame_parts

_SERVICE = "/kvshelf.v1.Kvshelf/"
_MAX_ANSWER_BYTES = 64 << 20
_RECONNECT_MILLISECONDS = 500
"""A service that is back is found within so long. gRPC by itself waits up to two minutes."""
_FRAME_BYTES = 1 << 20


class Channel:
    """Calls verbs by name, with a deadline. Threads may share it.

    Args:
        url: ``grpc://host:port`` or ``grpcs://host:port``.

    Raises:
        ValueError: the address is none. OSError: a file of the TLS settings cannot be read.
    """

    def __init__(self, url: str, options: TransportOptions, *, single_threaded: bool) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or parts.port is None or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no gRPC address; it looks like grpc://127.0.0.1:8711")
        self.where = f"{parts.scheme}://{parts.netloc}"
        arguments = _options(options, single_threaded=single_threaded)
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(parts.netloc, _credentials(options.tls), arguments)
        else:
            self._channel = grpc.insecure_channel(parts.netloc, arguments)
        self._metadata = (("authorization", f"Bearer {options.token}"),) if options.token else ()
        self._process = os.getpid()

    def unary(self, request: GrpcRequest) -> Any:
        """The callable of a verb with one request and one answer."""
        return self._usable().unary_unary(_SERVICE + request.verb, None, None)

    def download(self, request: GrpcRequest, deadline: Deadline, call_id: str) -> Any:
        """Begin a stream of encoded answers; it is their iterator, and a ``grpc.Call``."""
        stream = self._usable().unary_stream(_SERVICE + request.verb, None, None)
        return stream(request.message, **self.arguments(deadline, call_id))

    def upload(self, request: GrpcRequest) -> Any:
        """The callable of a verb with a stream of encoded requests and one answer."""
        return self._usable().stream_unary(_SERVICE + request.verb, None, None)

    def arguments(self, deadline: Deadline, call_id: str) -> dict[str, Any]:
        """What every call carries."""
        metadata = (*self._metadata, (HEADER, call_id), *trace_fields())
        return {"timeout": deadline.remaining_seconds, "metadata": metadata}

    def close(self) -> None:
        """Let go of it. Calls under way fail, later ones too."""
        self._channel.close()

    def _usable(self) -> grpc.Channel:
        if os.getpid() != self._process:
            raise UnreachableError("a gRPC client does not outlive a fork: make one in the new process")
        return self._channel


def store_chunks(request: Store, start: bytes) -> Iterator[bytes]:
    """A store as encoded messages of about ``CHUNK_BYTES``, the first with the start."""
    gathered: list[bytearray | memoryview] = []
    room = CHUNK_BYTES
    head: bytes | None = start
    for part in frame_parts(request.records):
        rest = memoryview(part)
        while rest:
            piece, rest = rest[:room], rest[room:]
            gathered.append(piece)
            room -= len(piece)
            if not room:
                yield pack_store_chunk(gathered, start=head)
                gathered, room, head = [], CHUNK_BYTES, None
    if gathered or head is not None:
        yield pack_store_chunk(gathered, start=head)


def _options(options: TransportOptions, *, single_threaded: bool) -> list[tuple[str, Any]]:
    return [
        # Streams are read by the thread that wants them, not by one of the channel's that hands them over.
        (ChannelOptions.SingleThreadedUnaryStream, int(single_threaded)),
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
