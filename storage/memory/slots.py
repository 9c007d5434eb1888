"""The records of the in-process pool and their accounts. No clock, no lock: the tier has both."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator

from storage.base import Entry, Payload, RecordId
from storage.integrity import expect, expect_equal

RECORD_OVERHEAD_BYTES = 1024
"""What a record takes beside its payload: key, entry, slot and dictionary, as tracemalloc counts it, rounded up."""


class Slot:
    """A record in memory.

    ``deadline`` is in seconds of the monotonic clock, ``pins`` counts the holds on it, and ``is_listed`` says whether
    the index still names it (a hold may outlive that). What is erased is not read any more, by no hold either.
    """

    __slots__ = ("deadline", "entry", "is_erased", "is_listed", "owner", "payload", "pins")

    def __init__(self, entry: Entry, payload: Payload, owner: str, deadline: float) -> None:
        self.entry = entry
        self.payload = payload
        self.owner = owner
        self.deadline = deadline
        self.pins = 0
        self.is_listed = False
        self.is_erased = False

    @property
    def cost_bytes(self) -> int:
        """Payload and overhead."""
        return self.entry.length_bytes + RECORD_OVERHEAD_BYTES


class SlotTable:
    """All slots in the order of their last use, and what they add up to. Not thread-safe."""

    def __init__(self) -> None:
        self._slots: OrderedDict[RecordId, Slot] = OrderedDict()
        self._owners: Counter[str] = Counter()
        self._unlisted_bytes = 0
        self.live_bytes = 0
        self.pinned_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        """The slots, least recently used first."""
        return iter(self._slots.values())

    @property
    def used_bytes(self) -> int:
        """Payloads and overhead of all that is listed, and of what only holds keep in memory."""
        return self.live_bytes + len(self._slots) * RECORD_OVERHEAD_BYTES + self._unlisted_bytes

    @property
    def owners(self) -> dict[str, int]:
        """Payload bytes by owner."""
        return dict(self._owners)

    def get(self, record_id: RecordId) -> Slot | None:
        """The listed slot of that id."""
        return self._slots.get(record_id)

    def add(self, slot: Slot) -> None:
        """List a slot as the most recently used. Its id must not be listed."""
        expect(slot.entry.id not in self._slots, f"{slot.entry.id} is listed already")
        self._slots[slot.entry.id] = slot
        slot.is_listed = True
        self.live_bytes += slot.entry.length_bytes
        if slot.entry.length_bytes:
            self._owners[slot.owner] += slot.entry.length_bytes

    def remove(self, slot: Slot) -> None:
        """Take a listed slot off the list. What holds pin of it stays accounted."""
        del self._slots[slot.entry.id]
        slot.is_listed = False
        self.live_bytes -= slot.entry.length_bytes
        if slot.entry.length_bytes:
            self._owners[slot.owner] -= slot.entry.length_bytes
            if not self._owners[slot.owner]:
                del self._owners[slot.owner]
        if slot.pins:
            self._unlisted_bytes += slot.cost_bytes

    def used(self, slot: Slot) -> None:
        """Make a listed slot the most recently used."""
        self._slots.move_to_end(slot.entry.id)

    def pin(self, slots: Iterable[Slot]) -> None:
        """One more hold on each of ``slots``."""
        for slot in slots:
            if not slot.pins:
                self.pinned_bytes += slot.entry.length_bytes
            slot.pins += 1

    def unpin(self, slots: Iterable[Slot]) -> None:
        """One hold less on each of ``slots``; the last one on an unlisted slot lets its bytes go."""
        for slot in slots:
            slot.pins -= 1
            if not slot.pins:
                self.pinned_bytes -= slot.entry.length_bytes
                if not slot.is_listed:
                    self._unlisted_bytes -= slot.cost_bytes

    def check(self) -> None:
        """Add everything up again; raises AssertionError that names the difference."""
        owners: Counter[str] = Counter()
        for record_id, slot in self._slots.items():
            entry = slot.entry
            # One condition and no text that nobody reads: simulations check this after every step.
            if not slot.is_listed or entry.id != record_id or len(slot.payload) != entry.length_bytes:
                raise AssertionError(f"{entry} of {len(slot.payload)} bytes is listed as {record_id}")
            owners[slot.owner] += slot.entry.length_bytes
        expect_equal("live bytes", owners.total(), self.live_bytes)
        expect_equal("owners", {owner: size for owner, size in owners.items() if size}, self.owners)
        listed_pins = sum(slot.entry.length_bytes for slot in self if slot.pins)
        expect(listed_pins <= self.pinned_bytes, f"{listed_pins} bytes pinned, {self.pinned_bytes} accounted")
        expect(self._unlisted_bytes >= 0, "less than nothing is held off the list")
