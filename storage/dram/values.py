"""Records as values in Redis: what is asked of the server for one, and what its answers mean.

A first write is ``SET NX``. Every other change that must not lose a race is a transaction under ``WATCH``, which Redis
refuses when anybody wrote, renewed or deleted the key, or it went by itself, since it was looked at. So of two writers
the exact one wins whatever the order, and a bad value is dropped only while it is still the bad one. Parts are
written before the header that names them, under names that hold its generation: a header never leads to another
record's parts. What no header names (a writer died, or lost) goes with its own expiry.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError, ResponseError

from storage.base import Payload, Record, RecordId, WriteOutcome
from storage.dram.ailment import Ailment
from storage.dram.bounded import OnBytes
from storage.dram.header import FORMAT_VERSION, HEADER_BYTES, Head, HeaderError, pack_head, unpack_head
from storage.dram.link import AWAY, Command, Link, LinkDownError, Reply, Session

_NAME = re.compile(rb"\{([0-9a-f]{64})\.([0-9]{1,5})\}")

ASK_RECORDS = 512
"""Most records asked about in one round."""

SWAP_ATTEMPTS = 16
"""How often a replacement is begun anew because somebody touched the key meanwhile."""

_ABSENT_MS = -2
_ENDLESS_MS = -1


class Trouble(Enum):
    """What is there instead of a record."""

    ABSENT = "absent"
    GARBAGE = "garbage"
    """A value that fails its checks, or is of another type."""
    LOST_PART = "lost_part"
    AWAY = "away"
    """Nobody can tell: the server it would be on does not serve."""


class Seen(NamedTuple):
    """A record that is there, and the seconds it has left to live."""

    head: Head
    left_seconds: float


class Values:
    """The values of one tier, named ``{prefix}{version}:{{{key}.{shard}}}``, parts with ``:{generation}:{n}`` behind.

    The braces are a hash tag: a record's values share a slot of a cluster. Every method may raise LinkDownError.

    Args:
        link: the server, or the servers.
        prefix: what every key starts with.
        ttl_seconds: life of a value after its last use, kept by the server as a relative expiry.
    """

    def __init__(self, link: Link, *, prefix: str, ttl_seconds: float) -> None:
        self._link = link
        self._prefix = f"{prefix}{FORMAT_VERSION}:".encode()
        self._ttl_seconds = ttl_seconds
        self._ttl_ms = math.ceil(ttl_seconds * 1000)
        self._left_after_renewal = {0: _ABSENT_MS, 1: self._ttl_ms}

    def key(self, record_id: RecordId) -> bytes:
        """The name of a record's value."""
        return b"%b{%b.%d}" % (self._prefix, record_id.key.hex().encode(), record_id.shard)

    def part_keys(self, record_id: RecordId, head: Head) -> list[bytes]:
        """The names of a record's parts, none when it has none."""
        key = self.key(record_id)
        return [b"%b:%x:%d" % (key, head.generation, number) for number in range(head.parts)]

    def look(self, ids: Sequence[RecordId]) -> list[Seen | Trouble]:
        """Read headers, never payloads. One round for up to ``ASK_RECORDS`` ids; the callers cut longer lists."""
        replies = self._link.ask([command for record_id in ids for command in self._peek(record_id)])
        return [
            self._judge(record_id, value, left)
            for record_id, value, left in zip(ids, replies[::2], replies[1::2], strict=True)
        ]

    def load(
        self, record_ids: Sequence[RecordId], *, renews: bool = False, on_bytes: OnBytes | None = None
    ) -> list[tuple[Seen, Payload] | Trouble]:
        """Read whole values in one round, and what is in parts one part a round. No payload is verified.

        ``renews``: they live anew, parts too, in the same rounds. ``on_bytes`` is told of the first one's value.
        """
        keys = [self.key(record_id) for record_id in record_ids]
        gets: list[Command] = [(b"GET", key) for key in keys]
        rest = [self._renew(key) if renews else (b"PTTL", key) for key in keys]
        replies = self._link.ask([*gets, *rest], on_bytes)
        lefts = [self._left_after_renewal.get(left, left) if renews else left for left in replies[len(keys) :]]
        return [
            self._payload_of(record_id, value, left, renews=renews)
            for record_id, value, left in zip(record_ids, replies[: len(keys)], lefts, strict=True)
        ]

    def renew(self, records: Sequence[tuple[RecordId, Head]]) -> list[bool]:
        """Let records live anew, parts too; whether each one's own value is (still) there. One round."""
        replies = iter(self._link.ask([command for one in records for command in self._renewal(*one)]))
        are_there: list[bool] = []
        for _, head in records:
            are_there.append(bool(next(replies)))
            for _ in range(head.parts):
                next(replies)
        return are_there

    def put(self, records: Sequence[tuple[Record, Head]]) -> list[WriteOutcome]:
        """Write inline records where nothing is, in one round; ``DUPLICATE`` where something is."""
        replies = self._link.ask([(*self._set(record, head), b"NX") for record, head in records])
        return [_outcome_of(reply) for reply in replies]

    def put_parts(self, record: Record, head: Head) -> bool:
        """Write a record's parts, one a round; False, and none is left, when there is no room for them."""
        view = memoryview(record.payload)
        for number, key in enumerate(self.part_keys(record.id, head)):
            piece = view[number * head.part_bytes : (number + 1) * head.part_bytes]
            (reply,) = self._link.ask([(b"SET", key, (piece,), b"PX", self._ttl_ms)])
            if reply is AWAY:
                raise LinkDownError(Ailment.UNREACHABLE, "a part of a record found no server")
            if isinstance(reply, OutOfMemoryError):
                self.drop_parts(record.id, head)
                return False
        return True

    def drop_parts(self, record_id: RecordId, head: Head) -> None:
        """Take back the parts of a record whose header was not written."""
        if head.parts:
            self._link.ask([(b"UNLINK", *self.part_keys(record_id, head))])

    def settle(self, record: Record, head: Head) -> tuple[WriteOutcome, Seen | Trouble]:
        """Write a record over whatever is there, unless that is at least as good; also what was there.

        Its parts are there already. ``TIER_DOWN`` when others kept changing the key for ``SWAP_ATTEMPTS`` rounds.
        """
        found: Seen | Trouble = Trouble.ABSENT
        for _ in range(SWAP_ATTEMPTS):
            with self._link.session(self.key(record.id)) as session:
                found = self._watch(session, record.id)
                if isinstance(found, Seen) and record.provenance <= found.head.provenance:
                    replies = session.ask([(b"UNWATCH",), *self._renewal(record.id, found.head)])
                    if replies[1]:
                        return WriteOutcome.DUPLICATE, found
                    continue
                replies = self._swap(session, record, head, found)
            if any(isinstance(reply, OutOfMemoryError) for reply in replies):
                return WriteOutcome.FULL, found
            if isinstance(replies[-1], list):
                is_better = isinstance(found, Seen)
                return WriteOutcome.REPLACED if is_better else WriteOutcome.STORED, found
        return WriteOutcome.TIER_DOWN, found

    def discard(self, record_id: RecordId, is_bad: Callable[[Seen | Trouble], bool]) -> bool:
        """Drop a value while ``is_bad`` still says so of it; False when it changed or went meanwhile."""
        with self._link.session(self.key(record_id)) as session:
            found = self._watch(session, record_id)
            if not is_bad(found):
                session.ask([(b"UNWATCH",)])
                return False
            parts = self.part_keys(record_id, found.head) if isinstance(found, Seen) else []
            replies = session.ask([(b"MULTI",), (b"UNLINK", self.key(record_id), *parts), (b"EXEC",)])
            return isinstance(replies[-1], list)

    def unlink(self, records: Sequence[tuple[RecordId, Head]]) -> list[bool]:
        """Drop records and their parts, whatever is there by now; whether each one's own value was. One round."""
        commands: list[Command] = [(b"UNLINK", self.key(record_id)) for record_id, _ in records]
        parts: list[Command] = [(b"UNLINK", *keys) for one in records if (keys := self.part_keys(*one))]
        return [bool(reply) for reply in self._link.ask([*commands, *parts])[: len(records)]]

    def scan(self, key_prefix: bytes, cursor: int, count: int) -> tuple[int, list[RecordId]]:
        """One step through the names of all values: the next cursor, 0 at the end, and the records found. One round."""
        pattern = _literally(self._prefix) + b"{" + key_prefix.hex().encode() + b"*}"
        following, names = self._link.scan(cursor, pattern, count)
        named = [_NAME.fullmatch(name[len(self._prefix) :]) for name in names]
        return following, [RecordId(bytes.fromhex(one[1].decode()), int(one[2])) for one in named if one]

    def lengths(self, keys: Sequence[bytes]) -> list[int]:
        """Lengths of values in bytes, 0 of those that are not there."""
        return self._link.ask([(b"STRLEN", key) for key in keys])

    def _peek(self, record_id: RecordId) -> Iterator[Command]:
        yield (b"GETRANGE", self.key(record_id), 0, HEADER_BYTES - 1)
        yield (b"PTTL", self.key(record_id))

    def _renewal(self, record_id: RecordId, head: Head) -> list[Command]:
        return [self._renew(key) for key in (self.key(record_id), *self.part_keys(record_id, head))]

    def _renew(self, key: bytes) -> Command:
        return (b"PEXPIRE", key, self._ttl_ms)

    def _set(self, record: Record, head: Head) -> Command:
        packed = pack_head(record.id, head)
        value = (packed,) if head.part_bytes else (packed, record.payload)
        return (b"SET", self.key(record.id), value, b"PX", self._ttl_ms)

    def _watch(self, session: Session, record_id: RecordId) -> Seen | Trouble:
        _, value, left = session.ask([(b"WATCH", self.key(record_id)), *self._peek(record_id)])
        return self._judge(record_id, value, left)

    def _swap(self, session: Session, record: Record, head: Head, found: Seen | Trouble) -> list[Reply]:
        commands: list[Command] = [(b"MULTI",), self._set(record, head)]
        if isinstance(found, Seen) and found.head.parts:
            commands.append((b"UNLINK", *self.part_keys(record.id, found.head)))
        return session.ask([*commands, (b"EXEC",)])

    def _judge(self, record_id: RecordId, value: Reply, left_ms: Reply) -> Seen | Trouble:
        if value is AWAY or left_ms is AWAY:
            return Trouble.AWAY
        if left_ms == _ABSENT_MS or value == b"":  # the key may come or go between the two replies
            return Trouble.ABSENT
        if isinstance(value, ResponseError):
            return Trouble.GARBAGE
        try:
            head = unpack_head(record_id, value)
        except HeaderError:
            return Trouble.GARBAGE
        return Seen(head, self._ttl_seconds if left_ms == _ENDLESS_MS else left_ms / 1000)

    def _payload_of(
        self, record_id: RecordId, value: Reply, left_ms: Reply, *, renews: bool
    ) -> tuple[Seen, Payload] | Trouble:
        if value is None:
            return Trouble.ABSENT
        found = self._judge(record_id, value, left_ms)
        if isinstance(found, Trouble):
            return found
        if not found.head.part_bytes:
            return found, memoryview(value)[HEADER_BYTES:]
        payload = bytearray(found.head.length_bytes)
        start = 0
        for key in self.part_keys(record_id, found.head):
            part, *_ = self._link.ask([(b"GET", key), *([self._renew(key)] if renews else [])])
            if part is AWAY:
                return Trouble.AWAY
            if not isinstance(part, (bytes, bytearray)) or len(part) != min(
                found.head.part_bytes, len(payload) - start
            ):
                return Trouble.LOST_PART
            payload[start : start + len(part)] = part
            start += len(part)
        return found, payload


def _literally(text: bytes) -> bytes:
    """A pattern that matches just this text."""
    return re.sub(rb"([*?\[\]\\^-])", rb"\\\1", text)


def _outcome_of(reply: Reply) -> WriteOutcome:
    """What a ``SET NX`` came to."""
    if reply is AWAY:
        return WriteOutcome.TIER_DOWN
    if isinstance(reply, OutOfMemoryError):
        return WriteOutcome.FULL
    return WriteOutcome.DUPLICATE if reply is None else WriteOutcome.STORED
