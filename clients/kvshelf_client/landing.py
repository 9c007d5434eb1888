"""Where a fetch lands: each payload in the buffer the caller gives for it, checked, and counted only without a gap."""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kvshelf_client.answers import Resume
from kvshelf_client.documents import Document
from kvshelf_client.errors import ChecksumError, Fault, FrameError, MissError
from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.plans import Plan, Slot
from kvshelf_client.words import MissReason, Provenance, RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Destination: TypeAlias = Callable[[Slot], Buffer | None] | Mapping[Slot, Buffer]

NO_BUFFER = "no_buffer"
"""The reason of a record for which the caller gave no buffer."""
NOT_FETCHED = "not_fetched"
"""The reason of a record that never came: one ahead of it was not there, or the call came to nothing."""
_MAX_FALLBACK_BYTES = 1 << 20


class Record(NamedTuple):
    """What became of one record. ``reason`` is None when it is in its buffer, checked; else it must not be used."""

    slot: Slot
    reason: str | None
    provenance: Provenance | None


class Loaded(NamedTuple):
    """What became of a fetch. ``resume`` is all an engine has to look at: run it, whatever happened.

    ``records`` are those that were wanted, in order. ``fault`` is why the fetch came to less than it should have, None
    when all is there, or when the fallback is, as the service said. ``request_id`` is what the fetch is called in the
    service's log. For several ranks see :meth:`Plan.settle`.
    """

    resume: Resume
    records: list[Record]
    has_snapshot: bool
    verified_tokens: int
    fault: Fault | None
    request_id: str | None = None


class Landing:
    """The sink of one plan's fetch. What comes must be what the plan loads, in order, and nothing else.

    The fetch ends at the first record that is not there: nothing behind it could be used. Begun anew, it keeps what it
    has: a record that was found good is not written a second time.

    Args:
        plan: has a lease.
        shard: that is fetched, None for all.
        destination: gives the buffer of a record, exactly as long as it, or None to do without it and what follows. It
            is asked in the order of arrival; when it is asked for the next one, the one before is complete.
    """

    def __init__(self, plan: Plan, shard: int | None, destination: "Destination") -> None:
        self._plan = plan
        self._shard = shard
        self._buffer_of = destination.get if isinstance(destination, Mapping) else destination
        self._resume = plan.resume
        self._good = self._at = 0
        self._miss: MissError | None = None
        self._provenances: list[Provenance | None] = []
        self._header: FrameHeader | None = None
        self._view = memoryview(b"")

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to fetch."""
        load = self._resume.load
        return load.snapshot_boundary is not None or load.global_end > load.global_start

    @cached_property
    def _wanted(self) -> list[Slot]:
        return self._plan.slots(self._resume, self._shard)

    def expect(self) -> None:
        """See :meth:`Sink.expect <kvshelf_client.transport.Sink.expect>`."""
        _ = self._wanted, self._plan.keys

    @property
    def has_lost_snapshot(self) -> bool:
        """Whether a snapshot came that is of no use, so that the fallback is to be asked for."""
        is_snapshot = self._good < len(self._wanted) and self._wanted[self._good].record_class is RecordClass.SNAPSHOT
        return is_snapshot and isinstance(self._miss, ChecksumError)

    def restart(self) -> None:
        """The fetch is tried again, from its first frame on."""
        self._at, self._miss, self._header = 0, None, None

    def begin(self, header: FrameHeader) -> memoryview:
        """See :meth:`Sink.begin <kvshelf_client.transport.Sink.begin>`."""
        if header.kind is FrameKind.FALLBACK:
            self._view = self._room_for_fallback(header)
        else:
            if self._miss is not None:
                self._try_again(header, self._miss)
            slot = self._expected(header)
            self._view = self._room_for(slot, header)
        self._header = header
        return self._view

    def end(self) -> bool:
        """See :meth:`Sink.end <kvshelf_client.transport.Sink.end>`."""
        header, self._header = self._header, None
        if header is None:
            raise FrameError("a payload came without a header")
        is_sound = checksum_of(self._view) == header.checksum
        if header.kind is FrameKind.FALLBACK:
            self._fall_back(is_sound=is_sound)
        elif self._at < self._good:
            self._at += 1
        elif is_sound:
            self._at = self._good = self._good + 1
            self._provenances.append(header.provenance)
        else:
            self._at, self._miss = self._at + 1, ChecksumError(MissReason.CORRUPT.value)
        return is_sound

    def finish(self) -> None:
        """No more frames come. Raises MissError where one was bad, FrameError where some did not come."""
        if self._miss is not None:
            raise self._miss
        if self._at < len(self._wanted):
            raise FrameError(f"{len(self._wanted) - self._at} records of the lease did not come")

    def loaded(self, fault: Fault | None, request_id: str) -> Loaded:
        """What has come of it. ``fault`` is why the transfer ended early, if it did."""
        plan, load = self._plan, self._resume.load
        if self._good == len(self._wanted) and self._resume is plan.resume:
            # All of the plan is there, as it is almost always: nothing is to be settled.
            records = list(map(Record, self._wanted, repeat(None), self._provenances))
            return Loaded(plan.resume, records, load.snapshot_boundary is not None, load.global_end, fault, request_id)
        snapshots = self._snapshots()
        has_snapshot = snapshots > 0 and self._good >= snapshots
        size, shards = plan.namespace.block_tokens, plan.namespace.shards if self._shard is None else 1
        each = (load.global_end - load.global_start) // size
        of_last_shard = min(max(self._good - snapshots - each * (shards - 1), 0), each)
        verified = load.global_start + of_last_shard * size
        records = [Record(slot, None, found) for slot, found in zip(self._wanted, self._provenances, strict=False)]
        records += [Record(slot, NOT_FETCHED, None) for slot in self._wanted[self._good :]]
        if self._miss is not None:
            records[self._good] = records[self._good]._replace(reason=self._miss.reason)
        return Loaded(
            plan.settle(has_snapshot=has_snapshot, verified_tokens=verified),
            records,
            has_snapshot,
            verified,
            fault,
            request_id,
        )

    def _snapshots(self) -> int:
        return sum(slot.record_class is RecordClass.SNAPSHOT for slot in self._wanted)

    def _room_for_fallback(self, header: FrameHeader) -> memoryview:
        if self._at or self._plan.fallback is None or header.length_bytes > _MAX_FALLBACK_BYTES:
            raise FrameError("a fallback where there can be none")
        return memoryview(bytearray(header.length_bytes))

    def _fall_back(self, *, is_sound: bool) -> None:
        """From here on what the fallback loads is expected. It is the one that came with the plan."""
        fallback = self._plan.fallback
        if fallback is None or not is_sound or Document.parse(self._view.tobytes()).text("plan_id") != fallback.plan_id:
            raise FrameError("a fallback that is not the plan's")
        if self._resume is not fallback:
            self._resume, self._wanted, self._good = fallback, self._plan.slots(fallback, self._shard), 0
            self._provenances.clear()

    def _try_again(self, header: FrameHeader, miss: MissError) -> None:
        """After a record that was bad only the same one may come, better; it is expected again."""
        if not _is_for(header, self._wanted[self._good]):
            raise miss
        self._at, self._miss = self._good, None

    def _expected(self, header: FrameHeader) -> Slot:
        """The slot of the frame that has come; raises FrameError when another one is due."""
        if self._at == len(self._wanted):
            raise FrameError("more came than the plan loads")
        slot, plan = self._wanted[self._at], self._plan
        if not _is_for(header, slot) or header.key != plan.keys[slot.end_tokens // plan.namespace.block_tokens - 1]:
            raise FrameError(f"{slot} was due, something else came")
        if header.miss is None:
            if header.length_bytes != plan.namespace.bytes_of(slot.record_class):
                raise FrameError(f"{slot} came with {header.length_bytes} bytes")
            if self._resume.exact and header.provenance is not Provenance.EXACT:
                raise FrameError(f"{slot} of an exact plan came as replayed")
        return slot

    def _room_for(self, slot: Slot, header: FrameHeader) -> memoryview:
        """The caller's buffer; raises MissError when there is nothing to put there, or nowhere to put it."""
        if self._at < self._good:
            return memoryview(bytearray(header.length_bytes))
        buffer = None if header.miss is not None else self._buffer_of(slot)
        if buffer is None:
            self._miss = MissError(header.miss.value if header.miss is not None else NO_BUFFER)
            raise self._miss
        try:
            view = memoryview(buffer).cast("B")
        except TypeError as error:
            raise ValueError(f"{slot} needs a contiguous buffer of {header.length_bytes} bytes: {error}") from None
        if view.readonly or len(view) != header.length_bytes:
            kind = "read-only" if view.readonly else f"of {len(view)} bytes"
            raise ValueError(f"{slot} needs a writable buffer of {header.length_bytes} bytes, got one {kind}")
        return view


def _is_for(header: FrameHeader, slot: Slot) -> bool:
    return (
        header.end_tokens == slot.end_tokens
        and header.shard == slot.shard
        and int(header.kind) == int(slot.record_class)
    )
