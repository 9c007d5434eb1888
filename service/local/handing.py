"""What a lease holds, as places in files: descriptors that can only be read, and which range is which record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvshelf_client.local.channel import close_all
from kvshelf_client.local.wire import MAX_DESCRIPTORS, MAX_RANGES, Open, pack_range
from service.access import Principal
from service.faces.answers import fallback_json
from service.shelf.fetching import Announced, begin_fetch
from service.shelf.parts import Parts
from service.shelf.superseding import retire
from storage.base import FileHold, Hold, Miss, Payload

MAX_FILES = 1000
"""Most descriptors that are open for one answer."""


class ElsewhereError(Exception):
    """What is asked for is not in files, or not in such as the asker may have, or they cannot be opened."""


def check_may_have_files(parts: Parts, principal: Principal) -> None:
    """A descriptor is of a whole file, so whoever may have one may read all that is in it: nobody else's records.

    Raises:
        ElsewhereError: the files hold records of several tenants.
    """
    tenant = parts.settings.access.tenants.get(principal.tenant or "")
    if parts.access.is_guarded and (tenant is None or tenant.store_budget_bytes is None):
        raise ElsewhereError("tenants without a store budget of their own share files; use another face")


@dataclass(slots=True)
class Part:
    """One RANGES message: packed ranges, and the descriptors that they name by position."""

    ranges: list[bytes] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    """Of the files, by number."""


@dataclass(frozen=True, slots=True)
class Handed:
    """The answer to an OPEN: ``head`` are frames to send first, then come the parts."""

    fell_back: bool
    head: list[Payload]
    parts: list[Part]


@contextmanager
def hand_out(parts: Parts, principal: Principal, ask: Open) -> Iterator[Handed]:
    """The places of what a lease of ``owner`` holds; the descriptors are closed at the end.

    The lease is in use while they are looked up, not while they are sent: a client that hangs holds nothing by it.

    Raises:
        UnknownLeaseError, NoSuchShardError, ElsewhereError: see there.
    """
    check_may_have_files(parts, principal)
    sorter = _Sorter()
    try:
        with parts.leases.use(principal.tenant, ask.lease_id) as lease:
            holds = _in_files(lease.blocks)
            opening = begin_fetch(parts, lease, ask.shard, fallback_json, fall_back=ask.fall_back)
            for shard in opening.blocks.entries:
                sorter.add(holds[shard], opening.blocks, shard)
        sorter.count(parts)
        yield Handed(opening.fell_back, opening.head, sorter.parts)
        retire(parts, opening.superseded)
    finally:
        sorter.close()


def _in_files(holds: Sequence[Hold]) -> list[FileHold]:
    found = [hold for hold in holds if isinstance(hold, FileHold)]
    if len(found) != len(holds):
        raise ElsewhereError("what this lease holds is not in files")
    return found


class _Sorter:
    """Sorts ranges into messages that are neither too long nor come with too many descriptors."""

    def __init__(self) -> None:
        self.parts = [Part()]
        self._files = 0
        self._records = self._bytes = 0

    def add(self, hold: FileHold, blocks: Announced, shard: int) -> None:
        """Add the blocks of one shard. A tight loop: there may be thousands."""
        entries = blocks.entries[shard]
        places = hold.extents(blocks.position, blocks.position + len(entries))
        end_tokens, step, current, position, total = blocks.start_tokens, blocks.block_tokens, 0, 0, 0
        part = self.parts[-1]
        for key, entry, (file, offset) in zip(blocks.keys, entries, places, strict=True):
            if file != current or len(part.ranges) == MAX_RANGES:
                part, position = self._turn_to(hold, file)
                current = file
            if isinstance(entry, Miss):
                raise ElsewhereError("not all blocks of this lease were there")
            end_tokens += step
            total += entry.length_bytes
            part.ranges.append(
                pack_range(
                    key,
                    offset,
                    entry.length_bytes,
                    entry.generation,
                    entry.checksum,
                    end_tokens,
                    shard,
                    position,
                    entry.provenance,
                )
            )
        self._records += len(entries)
        self._bytes += total

    def count(self, parts: Parts) -> None:
        """Count what is handed out."""
        parts.metrics.local_records.inc(self._records)
        parts.metrics.local_bytes.inc(self._bytes)

    def close(self) -> None:
        """Close the descriptors."""
        for part in self.parts:
            close_all(part.descriptors)
            part.descriptors = []

    def _turn_to(self, hold: FileHold, file: int) -> tuple[Part, int]:
        """The part for a range in a file, with the file's position there."""
        part = self.parts[-1]
        position = part.positions.get(file)
        if len(part.ranges) == MAX_RANGES or (position is None and len(part.descriptors) == MAX_DESCRIPTORS):
            part, position = Part(), None
            self.parts.append(part)
        if position is None:
            position = part.positions[file] = len(part.descriptors)
            part.descriptors.append(self._open(hold, file))
        return part, position

    def _open(self, hold: FileHold, file: int) -> int:
        self._files += 1
        if self._files > MAX_FILES:
            raise ElsewhereError(f"what this lease holds is in more than {MAX_FILES} files")
        try:
            return hold.open_file(file)
        except OSError as error:
            raise ElsewhereError(f"a file of this lease cannot be opened: {error.strerror}") from None
