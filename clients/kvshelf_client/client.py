"""The client: one method a verb, over whatever transport the address names."""

import os
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from kvshelf_client import requests
from kvshelf_client.answers import HashedTokens, Health, Namespace, PlanAnswer, Resume, StoreResult, resume_of
from kvshelf_client.deadline import Deadline
from kvshelf_client.documents import Document
from kvshelf_client.errors import FrameError, KvshelfError, ServiceError
from kvshelf_client.frames import KEY_BYTES, Frame, FrameHeader, check_key, checksum_of
from kvshelf_client.requests import NamespaceSpec, Request, StoreRecord
from kvshelf_client.transport import TransportOptions, transport_module
from kvshelf_client.upload import body_length_bytes
from kvshelf_client.words import MissReason, RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
_TOKEN_BYTES = 4
_DEFAULT_MAX_PAYLOAD_BYTES = 1 << 30
_BUDGET_SECONDS = 30.0


class Client:
    """A client of one service.

    Every method raises :class:`~kvshelf_client.errors.ServiceError` when the service answers with an error,
    ``UnreachableError`` when it does not answer, and ``AnswerError`` when the answer is not understood. Keys and hashes
    have 32 bytes; one that does not is a ValueError, and nothing is sent. Threads may share a client; each call under
    way has a connection of its own.

    Args:
        url: the service's address, such as ``http://127.0.0.1:8710``.
        timeout_seconds: longest wait for one step of a connection: connect, send, receive.
        max_payload_bytes: a frame that announces more is refused before memory is taken for it.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float = 30.0, max_payload_bytes: int = _DEFAULT_MAX_PAYLOAD_BYTES
    ) -> None:
        options = TransportOptions(read_seconds=timeout_seconds, max_payload_bytes=max_payload_bytes)
        self._transport = transport_module(url).connect(url, options)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._transport.close()

    def register_namespace(self, name: str, spec: NamespaceSpec) -> Namespace:
        """Make a namespace, or find that it is there already and is the same.

        A namespace of that name with other fields is a ServiceError of status 409 whose problem names the differences.
        """
        return self._call(requests.Register(name, spec))

    def hash_tokens(self, namespace: str, tokens: "Buffer") -> HashedTokens:
        """Let the service hash ``tokens`` (raw u32 little-endian), to prove that both hash alike."""
        return self._call(requests.HashTokens(namespace, tokens))

    def plan(
        self,
        namespace: str,
        *,
        tokens: "Buffer | None" = None,
        hashes: "Sequence[bytes] | Buffer | None" = None,
        prompt_tokens: int | None = None,
        request_id: str | None = None,
        hbm_tokens: int | None = None,
        hbm_exact_tokens: int | None = None,
        hbm_state: bool | None = None,
        allow_approximate: bool | None = None,
        supports: Iterable[str] | None = None,
        max_load_bytes_per_saved_token: float | None = None,
        lease_ttl_seconds: float | None = None,
        extra: bytes = b"",
    ) -> PlanAnswer:
        """Ask how a prompt resumes. What is None takes the service's default.

        Give either ``tokens`` (raw u32 little-endian) or ``hashes`` (32 bytes each, one by one or concatenated) and
        ``prompt_tokens``. A retry under the same ``request_id`` is counted once.
        """
        if (tokens is None) == (hashes is None) or (hashes is not None and prompt_tokens is None):
            raise ValueError("plan takes tokens, or hashes and prompt_tokens")
        body = tokens if tokens is not None else _joined(hashes if hashes is not None else b"")
        ask = requests.AskPlan(
            namespace,
            memoryview(body).nbytes // _TOKEN_BYTES if prompt_tokens is None else prompt_tokens,
            os.urandom(16).hex() if request_id is None else request_id,
            tokens,
            body if tokens is None else None,
            hbm_tokens,
            hbm_exact_tokens,
            hbm_state,
            allow_approximate,
            None if supports is None else list(supports),
            max_load_bytes_per_saved_token,
            lease_ttl_seconds,
            extra,
        )
        return self._call(ask)

    def fetch(self, lease_id: str, shard: int | None = None, *, fallback: bool = False) -> Iterator[Frame]:
        """Read what a lease holds of one shard: the snapshot first, then the blocks in order.

        Without ``shard`` the snapshots of all shards come first, then the blocks, shard after shard.

        The request is sent when the first frame is asked for; errors come from there on.
        A payload whose checksum is wrong comes as a frame with ``miss`` CORRUPT. When the snapshot has gone, the first
        frame is of kind FALLBACK, see :func:`fallback_of`; ``fallback`` asks for that when the snapshot came and was
        found bad. All ranks of an engine run the same plan: once a fetch of one shard falls back, those of the others
        must be done again. Leaving the iterator early closes its connection.

        Raises:
            FrameError: the stream holds something that is no frame; nothing after it is read.
        """
        collected = _Collected()
        try:
            self._call(requests.Fetch(lease_id, collected, shard, fallback))
        except KvshelfError:
            yield from collected.frames
            raise
        yield from collected.frames

    def store(
        self,
        namespace: str,
        records: Iterable[StoreRecord],
        *,
        plan_id: str | None = None,
        durable: bool = True,
        supersedes: bytes | None = None,
    ) -> StoreResult:
        """Store records; each has its outcome.

        A sequence is sent with its length ahead, any other iterable chunked as it comes. ``plan_id`` names the plan, or
        the fallback, that ran; ``supersedes`` the key of the session's previous snapshot.

        Raises:
            ValueError: a field of a record, or ``supersedes``, is out of range. Of a sequence nothing has been sent.
        """
        if supersedes is not None:
            check_key(supersedes, "supersedes")
        listed = list(records)
        body_length_bytes(listed)
        return self._call(requests.Store(namespace, listed, plan_id, durable, supersedes))

    def touch(self, namespace: str, record_class: RecordClass, keys: Iterable[bytes]) -> int:
        """Renew the life of records; returns how many were there."""
        return self._call(requests.TouchRecords(namespace, record_class, _checked(keys)))

    def delete(self, namespace: str, record_class: RecordClass, keys: Iterable[bytes]) -> int:
        """Forget records; returns how many were there."""
        return self._call(requests.DeleteRecords(namespace, record_class, _checked(keys)))

    def renew(self, lease_id: str) -> None:
        """Let a lease live on from now."""
        self._call(requests.Renew(lease_id))

    def release(self, lease_id: str, *, ran: str = "plan") -> None:
        """Give a lease back, and say what the request ran: ``plan``, ``fallback`` or ``cold``.

        A lease that is unknown is a ServiceError of status 404, but not where the connection broke under a first try:
        then that one is taken to have released it.
        """
        try:
            self._call(requests.Release(lease_id, ran))
        except ServiceError as error:
            if error.status != 404 or not error.retried:
                raise

    def stats(self) -> dict[str, object]:
        """What the service says of itself."""
        return self._call(requests.Stats())

    def health(self) -> Health:
        """Whether the service is well."""
        return self._call(requests.CheckHealth())

    def _call(self, request: Request[T]) -> T:
        return self._transport.call(request, Deadline(_BUDGET_SECONDS))


class _Collected:
    """A sink that keeps every frame."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._open: Frame | None = None

    def begin(self, header: FrameHeader) -> memoryview:
        self._open = Frame(header, bytearray(header.length_bytes))
        return memoryview(self._open.payload)

    def end(self) -> bool:
        if self._open is None:
            raise FrameError("no frame was begun")
        header, payload = self._open
        is_sound = header.miss is not None or checksum_of(payload) == header.checksum
        if not is_sound:
            header = header._replace(miss=MissReason.CORRUPT)
        self.frames.append(Frame(header, payload))
        return is_sound


def fallback_of(frame: Frame) -> Resume:
    """The plan a FALLBACK frame carries: the blocks behind it are those this plan loads.

    Raises:
        FrameError: the payload did not arrive whole.
    """
    if frame.header.miss is not None:
        raise FrameError("the fallback plan did not arrive whole")
    return resume_of(Document.parse(frame.payload, "fallback"))


def _joined(hashes: "Sequence[bytes] | Buffer") -> "Buffer":
    if isinstance(hashes, Sequence) and not isinstance(hashes, (bytes, bytearray, memoryview)):
        for index, each in enumerate(hashes):
            check_key(each, f"hashes[{index}]")
        return b"".join(hashes)
    view = memoryview(hashes)
    if view.nbytes % KEY_BYTES:
        raise ValueError(f"hashes have {KEY_BYTES} bytes each, got {view.nbytes} bytes")
    return view


def _checked(keys: Iterable[bytes]) -> list[bytes]:
    listed = list(keys)
    for index, key in enumerate(listed):
        check_key(key, f"keys[{index}]")
    return listed
