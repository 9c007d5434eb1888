"""A record whose value is on its way: what can be said of its payload before all of it is there."""

from storage.base import Entry, OnArrival, Payload
from storage.dram.header import HEADER_BYTES, HeaderError, unpack_head


class Arriving:
    """Tells of the payload of one record while its value comes, once its header is there and sound.

    A value that is begun anew, after one that broke off, is not told of.

    Args:
        held: the entry of the record. A value that may not stand for it is not told of.
        tell: who is told.
    """

    def __init__(self, held: Entry, tell: OnArrival) -> None:
        self._held, self._tell = held, tell
        self._value: memoryview | None = None
        self._entry: Entry | None = None

    def __call__(self, value: memoryview, filled_bytes: int) -> None:
        """So many bytes of the value are there. See :data:`storage.dram.bounded.OnBytes`."""
        if self._value is None:
            self._value, self._entry = value, self._judge(value)
        if self._value is value and self._entry is not None and filled_bytes < len(value):
            self._tell(self._entry, value[HEADER_BYTES:], filled_bytes - HEADER_BYTES)

    def found_sound(self, payload: Payload) -> None:
        """A payload of the record was verified: this one, or another one."""
        if self._value is not None and self._entry is not None:
            whole = self._value[HEADER_BYTES:]
            if isinstance(payload, memoryview) and payload.obj is whole.obj:
                self._tell(self._entry, whole, len(whole))

    def _judge(self, value: memoryview) -> Entry | None:
        """What is coming; None where it is not the whole record, or not as good as the one that is held."""
        try:
            head = unpack_head(self._held.id, value)
        except HeaderError:
            return None
        entry = head.entry(self._held.id, self._held.last_used_at)
        is_whole = not head.part_bytes and len(value) == head.value_bytes
        return entry if is_whole and may_stand_for(entry, self._held) else None


def may_stand_for(entry: Entry, held: Entry) -> bool:
    """Whether a record may be read in the place of the one that was held under its id."""
    return entry.provenance >= held.provenance and entry.length_bytes == held.length_bytes
