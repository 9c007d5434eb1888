"""The client: one method a verb of the REST face, over kept-alive HTTP/1.1 connections."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from urllib.parse import quote, urlencode

from kvshelf_client.answers import (
    HashedTokens,
    Health,
    Namespace,
    Plan,
    Resume,
    StoreResult,
    hashed_tokens_of,
    namespace_of,
    plan_of,
    resume_of,
    store_result_of,
)
from kvshelf_client.connection import Buffer, Connections, finishing, read_document
from kvshelf_client.documents import Document
from kvshelf_client.errors import FrameError, ServiceError
from kvshelf_client.fetching import read_frames
from kvshelf_client.frames import KEY_BYTES, MEDIA_TYPE, Frame, check_key
from kvshelf_client.upload import StoreRecord, body_length_bytes, frame_parts
from kvshelf_client.words import RecordClass

HASHES_MEDIA_TYPE = "application/vnd.kvshelf.hashes.v1"
OWN_HASH_SCHEME = "kvshelf-sha256"
_JSON, _OCTETS = "application/json", "application/octet-stream"
_DEFAULT_MAX_PAYLOAD_BYTES = 1 << 30


@dataclass(frozen=True)
class NamespaceSpec:
    """What a namespace is made of; two with one field apart share nothing.

    Args:
        profile: a profile's id, or a whole profile as its fields.
        block_tokens: tokens a block; a multiple of the profile's ``boundary_multiple_tokens``.
        bytes_per_token: shrinks the records to this many bytes a token, for load tests; None for the real sizes.
        hash_scheme: ``kvshelf-sha256``, or the engine's own name for how it hashes.
        hash_block_tokens: tokens under one of the engine's hashes, a divisor of ``block_tokens``; None for the same.
        shards: tensor-parallel ranks that hold different bytes.
    """

    tenant: str
    model: str
    weights_revision: str
    profile: str | dict[str, object]
    block_tokens: int = 128
    bytes_per_token: int | None = None
    hash_scheme: str = OWN_HASH_SCHEME
    hash_block_tokens: int | None = None
    salt: str = ""
    shards: int = 1


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
        self._connections = Connections(url, timeout_seconds)
        self._max_payload_bytes = max_payload_bytes

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._connections.close()

    def register_namespace(self, name: str, spec: NamespaceSpec) -> Namespace:
        """Make a namespace, or find that it is there already and is the same.

        A namespace of that name with other fields is a ServiceError of status 409 whose problem names the differences.
        """
        body = json.dumps(asdict(spec)).encode()
        answer = self._connections.call("PUT", _namespace_path(name), body, {"content-type": _JSON}, retry=True)
        return namespace_of(read_document(answer), created=answer.status == 201)

    def hash_tokens(self, namespace: str, tokens: Buffer) -> HashedTokens:
        """Let the service hash ``tokens`` (raw u32 little-endian), to prove that both hash alike."""
        path = _namespace_path(namespace) + "/hash"
        return hashed_tokens_of(self._connections.document("POST", path, tokens, _OCTETS, retry=True))

    def plan(
        self,
        namespace: str,
        *,
        tokens: Buffer | None = None,
        hashes: Sequence[bytes] | Buffer | None = None,
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
    ) -> Plan:
        """Ask how a prompt resumes. What is None takes the service's default.

        Give either ``tokens`` (raw u32 little-endian) or ``hashes`` (32 bytes each, one by one or concatenated) and
        ``prompt_tokens``. A retry under the same ``request_id`` is counted once.
        """
        if (tokens is None) == (hashes is None) or (hashes is not None and prompt_tokens is None):
            raise ValueError("plan takes tokens, or hashes and prompt_tokens")
        query = {
            "request_id": request_id,
            "prompt_tokens": prompt_tokens if tokens is None else None,
            "hbm_tokens": hbm_tokens,
            "hbm_exact_tokens": hbm_exact_tokens,
            "hbm_state": hbm_state,
            "allow_approximate": allow_approximate,
            "supports": None if supports is None else ",".join(supports),
            "max_load_bytes_per_saved_token": max_load_bytes_per_saved_token,
            "lease_ttl_seconds": lease_ttl_seconds,
            "extra": extra.hex() or None,
        }
        body: Buffer = tokens if tokens is not None else _joined(hashes if hashes is not None else b"")
        kind = _OCTETS if tokens is not None else HASHES_MEDIA_TYPE
        path = _namespace_path(namespace) + "/plan" + _query(query)
        return plan_of(self._connections.document("POST", path, body, kind, retry=True))

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
        path = f"/v1/leases/{quote(lease_id, safe='')}/fetch" + _query({"shard": shard, "fallback": fallback or None})
        answer = self._connections.call("GET", path, headers={"accept": MEDIA_TYPE}, retry=True)
        with finishing(answer):
            yield from read_frames(answer, self._max_payload_bytes)

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
        query = {
            "plan_id": plan_id,
            "durability": "durable" if durable else "relaxed",
            "supersedes": None if supersedes is None else _hex_key(supersedes, "supersedes"),
        }
        headers = {"content-type": MEDIA_TYPE}
        if isinstance(records, Sequence):
            headers["content-length"] = str(body_length_bytes(records))
        path = _namespace_path(namespace) + "/store" + _query(query)
        return store_result_of(read_document(self._connections.upload("POST", path, frame_parts(records), headers)))

    def touch(self, namespace: str, record_class: RecordClass, keys: Iterable[bytes]) -> int:
        """Renew the life of records; returns how many were there."""
        return self._keys_call(namespace, "touch", record_class, keys).integer("records")

    def delete(self, namespace: str, record_class: RecordClass, keys: Iterable[bytes]) -> int:
        """Forget records; returns how many were there."""
        return self._keys_call(namespace, "delete", record_class, keys).integer("records")

    def renew(self, lease_id: str) -> None:
        """Let a lease live on from now."""
        path = f"/v1/leases/{quote(lease_id, safe='')}/touch"
        with finishing(self._connections.call("POST", path, retry=True)) as answer:
            answer.read()

    def release(self, lease_id: str, *, ran: str | None = None) -> None:
        """Give a lease back, and say what the request ran: ``plan``, ``fallback`` or ``cold``.

        A lease that is unknown is a ServiceError of status 404, but not where the connection broke under a first try:
        then that one is taken to have released it.
        """
        path = f"/v1/leases/{quote(lease_id, safe='')}" + _query({"ran": ran})
        try:
            with finishing(self._connections.call("DELETE", path, retry=True)) as answer:
                answer.read()
        except ServiceError as error:
            if error.status != 404 or not error.retried:
                raise

    def stats(self) -> dict[str, object]:
        """What the service says of itself."""
        return self._connections.document("GET", "/v1/stats", retry=True).fields

    def health(self) -> Health:
        """Whether the service is well."""
        document = self._connections.document("GET", "/healthz", retry=True)
        return Health(document.text("status"), [str(cause) for cause in document.items("causes")])

    def _keys_call(self, namespace: str, verb: str, record_class: RecordClass, keys: Iterable[bytes]) -> Document:
        texts = [_hex_key(key, f"keys[{index}]") for index, key in enumerate(keys)]
        body = json.dumps({"class": record_class.name.lower(), "keys": texts}).encode()
        return self._connections.document("POST", f"{_namespace_path(namespace)}/{verb}", body, _JSON, retry=True)


def fallback_of(frame: Frame) -> Resume:
    """The plan a FALLBACK frame carries: the blocks behind it are those this plan loads.

    Raises:
        FrameError: the payload did not arrive whole.
    """
    if frame.header.miss is not None:
        raise FrameError("the fallback plan did not arrive whole")
    return resume_of(Document.parse(frame.payload, "fallback"))


def _namespace_path(name: str) -> str:
    return f"/v1/namespaces/{quote(name, safe='')}"


def _joined(hashes: Sequence[bytes] | Buffer) -> Buffer:
    if isinstance(hashes, (bytes, bytearray, memoryview)):
        if len(hashes) % KEY_BYTES:
            raise ValueError(f"hashes have {KEY_BYTES} bytes each, got {len(hashes)} bytes")
        return hashes
    for index, each in enumerate(hashes):
        check_key(each, f"hashes[{index}]")
    return b"".join(hashes)


def _hex_key(key: bytes, field: str) -> str:
    check_key(key, field)
    return key.hex()


def _query(values: Mapping[str, object]) -> str:
    """``?name=value`` of everything that is not None; booleans as ``true`` and ``false``."""
    given = {name: _text(value) for name, value in values.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
