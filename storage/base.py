"""The tier contract: what every shelf that keeps records promises. ``tests/contract`` runs one suite over all of them.

A tier keeps **records**: opaque payloads under a :class:`RecordId`, each with a provenance and a checksum. It knows
nothing of prompts, plans or models.

Promises of every tier:

* **Write-once, exact wins.** The first write of an id is kept; a later one is a duplicate and moves no bytes, except
  that an exact record replaces a replayed one. Never the reverse.
* **Never wrong bytes.** What a read returns has been verified against its checksum; a record that fails is a miss with
  reason ``corrupt`` and is dropped.
* **Faults are misses.** Lookups, holds and reads of a tier in trouble answer ``Miss(TIER_DOWN)``; writes answer
  ``WriteOutcome.TIER_DOWN``. They do not raise. Programming errors (wrong types; use after close: ValueError) do.
* **Sliding life.** A record lives ``ttl_seconds`` from its last use: its write or its last :meth:`Tier.touch`.
  A lookup or read alone is no use. An expired record is a miss even while its bytes are still there.
* **Threads.** Every method may be called from any thread. Any of them may block on disk or network, so none may be
  called on an event loop.
* **Order.** Results come in the order of the ids asked for, one each. The same id twice in a call is answered twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from kvshelf_client.words import MissReason, Provenance

KEY_BYTES = 32
MAX_SHARD = 65_535
MAX_LABEL = 0xFFFFFFFF
UNKNOWN_CHECKSUM = 0

Fact = str | int | float
"""What an event says of itself: never a payload, and of a key only its beginning."""

Payload = bytes | bytearray | memoryview
"""A payload: contiguous bytes that nobody changes while a tier holds them."""


class RecordId(NamedTuple):
    """The name of a record: the 32-byte key and the shard (tensor-parallel rank) whose bytes it holds."""

    key: bytes
    shard: int = 0


def pack_id(record_id: RecordId) -> bytes:
    """An id as bytes that sort: the key and the shard (u16 big-endian)."""
    return record_id.key + record_id.shard.to_bytes(2, "big")


class Record(NamedTuple):
    """A record as it is handed to :meth:`Tier.write`. ``checksum`` is xxh3_64 of ``payload``.

    ``owner`` is whom its bytes are accounted to (a short name, at most 64 bytes of UTF-8). ``supersedes`` names the
    record that goes when this one is first used; a tier only keeps that note, the service acts on it. ``label`` is a
    number (0 to ``MAX_LABEL``) that a wrapper around the tier keeps with the record.
    """

    id: RecordId
    payload: Payload
    checksum: int
    provenance: Provenance
    owner: str = ""
    supersedes: bytes | None = None
    label: int = 0


class Entry(NamedTuple):
    """What a tier knows of a live record without reading its payload. Times are wall-clock seconds.

    ``generation`` is never used twice for the same id with other bytes: key and generation make the ETag.
    ``checksum`` is ``UNKNOWN_CHECKSUM`` where a tier learns it by reading only; a :class:`Loaded` always has it.
    """

    id: RecordId
    provenance: Provenance
    length_bytes: int
    checksum: int
    generation: int
    created_at: float
    last_used_at: float
    supersedes: bytes | None = None
    label: int = 0


class Miss(NamedTuple):
    """A record that is not served, and why."""

    id: RecordId
    reason: MissReason


class Loaded(NamedTuple):
    """A record with its verified payload."""

    entry: Entry
    payload: Payload


OnArrival = Callable[[Entry, memoryview, int], None]
"""Told of a payload while it is read: its entry, the memory it comes into, and how many of its bytes are there by now.

That all of them are there is told only once the payload was found sound, and then it is what the read returns. Who was
told of less is to wait for what that is: a miss, another copy, or this one. The calls come from the thread that reads;
they must neither wait nor raise.
"""


class WriteOutcome(StrEnum):
    """What became of one record of a write."""

    STORED = "stored"
    REPLACED = "replaced"
    """An exact record took the place of a replayed one."""
    DUPLICATE = "duplicate"
    """A record at least as good was there. No bytes were written; its life is renewed as by a touch."""
    CORRUPT = "corrupt"
    """The payload does not match its checksum. Nothing was written."""
    FULL = "full"
    """No room, and nothing may be evicted for it. Nothing was written."""
    NO_KEY = "no_key"
    """Records are sealed, and its tenant has no key. Nothing was written."""
    TIER_DOWN = "tier_down"
    """The tier could not keep it. Nothing is promised."""


class WriteResult(NamedTuple):
    """One record's outcome. ``generation`` is that of the record now kept, 0 where none is known."""

    id: RecordId
    outcome: WriteOutcome
    generation: int = 0


class Usage(NamedTuple):
    """What a tier holds. Bytes of payloads are ``live_bytes``; what they take on the medium is ``used_bytes``.

    ``live_bytes`` and ``records`` count records that are named by the index, expired ones included until their space
    is taken back. ``used_bytes <= budget_bytes`` where there is a budget of the tier's own (0: none known); a remote
    server may be over its by a record. ``owners`` maps an owner to its live payload bytes. A tier that shares a remote
    server knows of what it stored or saw itself. ``expiry_lag_seconds`` is how long after their end the oldest expired
    records still take space; 0 where there are none, and in a remote server, which expires by itself.
    ``filled_bytes`` are the ``used_bytes`` without what is taken on the medium in advance and holds nothing yet.
    """

    records: int
    live_bytes: int
    used_bytes: int
    budget_bytes: int
    pinned_bytes: int
    owners: dict[str, int]
    expiry_lag_seconds: float = 0.0
    filled_bytes: int = 0


class Page(NamedTuple):
    """Some of the records that a scan goes through. ``cursor`` is where it goes on; None: that was all."""

    entries: list[Entry]
    cursor: bytes | None


class Wiped(NamedTuple):
    """What one step of wiping overwrote.

    ``cursor`` is where to go on, None after the last step. ``is_held`` says that this part was passed by, because a
    hold may still read what is dead in it.
    """

    written_bytes: int
    cursor: int | None
    is_held: bool = False


class TierAwayError(Exception):
    """A tier in trouble cannot be gone through. Try again."""


class TierObserver(Protocol):
    """Who is told what happens inside a tier, to count it. Calls come from any thread and must be quick."""

    def evicted(self, tier: str, cause: str, records: int, payload_bytes: int) -> None:
        """Records went: cause ``expired`` | ``budget`` | ``deleted`` | ``corrupt`` | ``replaced`` | ``superseded``."""
        ...

    def age_at_expiry(self, tier: str, seconds: float) -> None:
        """A record expired this many seconds after it was stored."""
        ...

    def moved(self, tier: str, operation: str, payload_bytes: int) -> None:
        """Payload bytes went to or from the medium: operation ``read`` | ``write`` | ``carry``.

        With ``memory`` they were to be read, and were in memory.
        """
        ...

    def fault(self, tier: str, kind: str) -> None:
        """Something failed and was answered as a miss: kind ``io`` | ``timeout`` | ``corrupt`` | ``full``,
        and of a server ``unreachable`` | ``denied`` | ``refused``.
        """
        ...

    def noticed(self, tier: str, event: str, facts: Mapping[str, Fact]) -> None:
        """Something happened that an operator should read of: damage, repair, a medium in trouble or well again."""
        ...


class SilentObserver:
    """An observer that ignores everything."""

    def evicted(self, tier: str, cause: str, records: int, payload_bytes: int) -> None:
        """See :meth:`TierObserver.evicted`."""

    def age_at_expiry(self, tier: str, seconds: float) -> None:
        """See :meth:`TierObserver.age_at_expiry`."""

    def moved(self, tier: str, operation: str, payload_bytes: int) -> None:
        """See :meth:`TierObserver.moved`."""

    def fault(self, tier: str, kind: str) -> None:
        """See :meth:`TierObserver.fault`."""

    def noticed(self, tier: str, event: str, facts: Mapping[str, Fact]) -> None:
        """See :meth:`TierObserver.noticed`."""


class Hold(ABC):
    """Records resolved once and kept readable until :meth:`release`, as far as the tier can.

    The SSD tier and the in-process tier keep what they hold readable: eviction, replacement and recycling pass it by
    (an expired or deleted record stays readable too). A remote pool cannot (best effort): a read may then be a miss.
    A read never returns a record of lower provenance, or of another length, than the entry that was held.
    """

    entries: list[Entry | Miss]
    """One a requested id, as they were when the hold was taken."""

    @abstractmethod
    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """Read and verify the payloads of ``entries[start:end]``. An entry that was a miss is that miss again."""

    def reread(self, start: int, end: int) -> list[Loaded | Miss]:
        """As :meth:`read`, from the medium even where there are copies in memory; none is kept there."""
        return self.read(start, end)

    def expect(self, start: int, end: int) -> None:  # noqa: B027 - a tier that has nothing to prepare does nothing
        """Say that ``entries[start:end]`` will be read next. Does not wait; a tier may begin to read them."""

    @abstractmethod
    def keep(self, start: int, end: int) -> None:
        """Let go of everything outside ``entries[start:end]``; ``entries`` shrinks to that range."""

    @abstractmethod
    def release(self) -> None:
        """Let go of everything. May be called more than once; a read afterwards raises ValueError."""


Extent = tuple[int, int]
"""Where a payload stands: the number of the file, from 1 on, and the offset of its first byte there."""


class FileHold(Hold):
    """A hold whose payloads stand in files as they are, so that another process of this machine can read them there.

    Until the release a file that has a held record is not removed, and where the record is nothing is written but the
    zeros of an :meth:`Tier.erase`. Afterwards both may happen at any time. No file is ever cut short.
    """

    @abstractmethod
    def extents(self, start: int, end: int) -> list[Extent]:
        """Where the payloads of ``entries[start:end]`` are; file 0 for a miss.

        Nothing is read here, so their bytes are not verified. The first call has them brought into the page cache,
        where a process that maps the files finds them a moment later. Raises ValueError after the release.
        """

    @abstractmethod
    def open_file(self, number: int) -> int:
        """A new descriptor of one of these files that can only be read; the caller closes it. Raises OSError."""


class Tier(ABC):
    """A shelf. See the module's promises."""

    name: str
    """``ssd`` or ``dram``: the value of the metrics' ``tier`` label."""

    @abstractmethod
    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """What is there. Changes nothing: no use, no life renewed, nothing held."""

    @abstractmethod
    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """As :meth:`lookup`, and keep what was found readable until the hold is released."""

    @abstractmethod
    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """Keep records; the whole call is one commit.

        With ``durable`` a tier that can be durable (see :attr:`is_durable`) has synced all that it acknowledges
        before it returns. The same id twice in one call: the second is judged after the first.
        """

    def allocate(self, length_bytes: int) -> memoryview:
        """Memory for a payload that is to be written to this tier: the tier's own kind, which saves it a copy.

        Fill it, hand it to :meth:`write` whole, and do not change it after that.
        """
        return memoryview(bytearray(length_bytes))

    @abstractmethod
    def touch(self, ids: Sequence[RecordId]) -> int:
        """Renew the life of the live ones among ``ids``; returns how many those were. Batched: never syncs."""

    def use(
        self,
        hold: Hold,
        start: int,
        end: int,
        on_arrival: OnArrival | None = None,  # noqa: ARG002 - most tiers have a payload at once
    ) -> list[Loaded | Miss]:
        """As ``hold.read``, of a hold of this tier, and as :meth:`touch` of what was read.

        A tier to which a payload comes bit by bit tells ``on_arrival`` of it, where one record is used.
        """
        found = hold.read(start, end)
        self.touch([one.entry.id for one in found if isinstance(one, Loaded)])
        return found

    @abstractmethod
    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """Forget records; returns how many were there. Durable in a durable tier. A hold may still read them."""

    @abstractmethod
    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """Go through the records whose keys start with ``prefix``, about ``limit`` at a time, expired ones too.

        ``cursor`` is that of the page before. A record that is there all the while is in one page at least.

        Raises:
            TierAwayError: see there. A scan is the one question that a miss is no answer to.
        """

    @abstractmethod
    def erase(self, ids: Sequence[RecordId]) -> int:
        """As :meth:`delete`, and for good: a hold does not read them any more, and a tier that owns its medium writes
        over their bytes there, durably, before it returns. :meth:`wipe` does that with what is left of earlier copies.

        Raises:
            TierAwayError: not all of them are known to be gone.
        """

    def wipe(self, cursor: int = 0) -> Wiped:  # noqa: ARG002 - most tiers leave nothing behind
        """Write over a part of the space that no record has: what was dropped, replaced or moved is gone from there.

        Raises:
            TierAwayError: the medium cannot be written.
        """
        return Wiped(0, None)

    @abstractmethod
    def maintain(self) -> None:
        """One bounded step of upkeep: write batched touches, take back the space of the expired. Call it regularly."""

    @abstractmethod
    def usage(self) -> Usage:
        """What is held now; cheap enough for every scrape."""

    @abstractmethod
    def is_up(self) -> bool:
        """Whether the tier can serve, as it last saw itself. Never blocks."""

    def trouble(self) -> str | None:
        """What is wrong, in words for an operator; None while all is well. Never blocks.

        A tier that is up may be in trouble: it answers, but takes or keeps less than it should.
        """
        return None

    @abstractmethod
    def check_integrity(self) -> None:
        """Compare the tier's accounts with what is there; raises AssertionError that names the difference."""

    @abstractmethod
    def close(self) -> None:
        """Write what is batched and let go of files and connections. Safe to call twice."""

    @property
    @abstractmethod
    def is_durable(self) -> bool:
        """Whether an acknowledged durable write survives a crash of the machine."""
