"""A circuit breaker around a tier: after a few faults nobody waits for the tier until it is well again."""

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeVar

from kvshelf_client.circuit import Breaker, BreakerState
from kvshelf_client.words import MissReason
from storage.base import (
    Entry,
    Hold,
    Loaded,
    Miss,
    OnArrival,
    Page,
    Record,
    RecordId,
    Tier,
    TierAwayError,
    Usage,
    Wiped,
    WriteOutcome,
    WriteResult,
)
from storage.clock import Clock

_Answer = TypeVar("_Answer")
_Read = Callable[[Hold, int, int], list[Loaded | Miss]]


class BreakerTier(Tier):
    """A tier behind a breaker, with the same promises.

    A call counts as a fault when its answer says ``TIER_DOWN`` anywhere; verbs whose answer cannot say it (touch,
    delete, maintain) count by the tier's :meth:`Tier.is_up` after them. An exception is a programming error and
    counts as neither, but fails a probe. Calls about nothing, and usage, which may be from memory, count as neither.
    While it is open, look-ups, reads and writes answer ``TIER_DOWN``, nothing is touched or deleted, and usage is the
    last known. ``maintain`` is let through as a probe like any other call, so a service that calls it regularly
    finds a tier that is well again without traffic.

    Args:
        tier: what is protected; closed with the breaker.
        serves_in_part: for a tier of several servers, each with a breaker of its own: what one of them does not answer
            is no fault as long as the tier says that it is up.
        clock, faults_to_open, first_delay_seconds, max_delay_seconds, jitter: see :class:`Breaker`.
    """

    def __init__(
        self,
        tier: Tier,
        clock: Clock,
        *,
        jitter: Callable[[], float],
        faults_to_open: int = 3,
        first_delay_seconds: float = 0.5,
        max_delay_seconds: float = 5.0,
        serves_in_part: bool = False,
    ) -> None:
        self.name = tier.name
        self._tier = tier
        self._breaker = Breaker(
            clock.monotonic,
            faults_to_open=faults_to_open,
            first_delay_seconds=first_delay_seconds,
            max_delay_seconds=max_delay_seconds,
            jitter=jitter,
        )
        self._serves_in_part = serves_in_part
        self._last_usage = Usage(0, 0, 0, 0, 0, {})

    @property
    def state(self) -> BreakerState:
        """Whether calls reach the tier, for the metric."""
        return self._breaker.state

    @property
    def is_durable(self) -> bool:
        """As the tier."""
        return self._tier.is_durable

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        return self._call(ids, lambda: self._tier.lookup(ids), lambda: [*_down(ids)], _is_served)

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. Taken while the breaker is open it holds nothing but misses."""
        return self._call(
            ids,
            lambda: _BreakerHold(self._tier.hold(ids), self._call),
            lambda: _DownHold(_down(ids)),
            lambda hold: _is_served(hold.entries),
        )

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`."""
        return self._call(
            records,
            lambda: self._tier.write(records, durable=durable),
            lambda: [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in records],
            lambda results: all(result.outcome is not WriteOutcome.TIER_DOWN for result in results),
        )

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return self._call(ids, lambda: self._tier.touch(ids), lambda: 0, self._is_up_after)

    def use(self, hold: Hold, start: int, end: int, on_arrival: OnArrival | None = None) -> list[Loaded | Miss]:
        """See :meth:`Tier.use`."""
        if isinstance(hold, _BreakerHold):
            return hold.read_by(lambda inner, first, last: self._tier.use(inner, first, last, on_arrival), start, end)
        return hold.read(start, end)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`."""
        return self._call(ids, lambda: self._tier.delete(ids, cause=cause), lambda: 0, self._is_up_after)

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`."""
        return self._call((self.name,), lambda: self._tier.scan(prefix, cursor, limit), self._refuse, lambda _: True)

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`."""
        return self._call(ids, lambda: self._tier.erase(ids), self._refuse, self._is_up_after)

    def wipe(self, cursor: int = 0) -> Wiped:
        """See :meth:`Tier.wipe`."""
        return self._tier.wipe(cursor)

    def maintain(self) -> None:
        """See :meth:`Tier.maintain`."""
        self._call((self.name,), self._tier.maintain, lambda: None, self._is_up_after)

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`."""
        if self.state is BreakerState.CLOSED:
            self._last_usage = self._tier.usage()
        return self._last_usage

    def is_up(self) -> bool:
        """See :meth:`Tier.is_up`. False while the breaker is not closed."""
        return self.state is BreakerState.CLOSED and self._tier.is_up()

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`."""
        return self._tier.trouble()

    def check_integrity(self) -> None:
        """See :meth:`Tier.check_integrity`. Goes through whatever the state."""
        self._tier.check_integrity()

    def close(self) -> None:
        """See :meth:`Tier.close`. Closes the tier, whatever the state."""
        self._tier.close()

    def _refuse(self) -> NoReturn:
        raise TierAwayError(f"the {self.name} tier does not serve")

    def _is_up_after(self, answer: object) -> bool:  # noqa: ARG002 - the answer cannot say
        return self._tier.is_up()

    def _call(
        self,
        subjects: Sequence[object],
        call: Callable[[], _Answer],
        refuse: Callable[[], _Answer],
        is_well: Callable[[_Answer], bool],
    ) -> _Answer:
        """Make a call about ``subjects`` if the breaker lets it through, and count how it went."""
        if not subjects:
            return call()
        turn = self._breaker.begin()
        if turn is None:
            return refuse()
        verdict: bool | None = None
        try:
            answer = call()
            verdict = is_well(answer) or (self._serves_in_part and self._tier.is_up())
        finally:
            self._breaker.end(turn, is_well=verdict)
        return answer


class _BreakerHold(Hold):
    """A tier's hold whose reads go through the breaker."""

    def __init__(self, hold: Hold, call: "_Call") -> None:
        self.entries = hold.entries
        self._hold = hold
        self._call = call
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        return self.read_by(lambda hold, first, last: hold.read(first, last), start, end)

    def read_by(self, read: _Read, start: int, end: int) -> list[Loaded | Miss]:
        """As :meth:`read`, by something that reads the tier's own hold."""
        if self._is_released:
            raise ValueError("this hold was released")
        asked = self.entries[start:end]
        return self._call(
            [one for one in asked if isinstance(one, Entry)],
            lambda: read(self._hold, start, end),
            lambda: [Miss(one.id, MissReason.TIER_DOWN) if isinstance(one, Entry) else one for one in asked],
            lambda results: _is_served(
                [one for one, held in zip(results, asked, strict=True) if isinstance(held, Entry)]
            ),
        )

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self._hold.keep(start, end)
        self.entries = self._hold.entries

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True
        self._hold.release()


class _DownHold(Hold):
    """What is held of a tier that cannot be asked."""

    def __init__(self, misses: Sequence[Miss]) -> None:
        self.entries = [*misses]
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        if self._is_released:
            raise ValueError("this hold was released")
        return [one for one in self.entries[start:end] if isinstance(one, Miss)]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True


class _Call(Protocol):
    """The type of ``BreakerTier._call``."""

    def __call__(
        self,
        subjects: Sequence[object],
        call: Callable[[], _Answer],
        refuse: Callable[[], _Answer],
        is_well: Callable[[_Answer], bool],
    ) -> _Answer: ...


def _down(ids: Sequence[RecordId]) -> list[Miss]:
    return [Miss(record_id, MissReason.TIER_DOWN) for record_id in ids]


def _is_served(results: Sequence[Entry | Loaded | Miss]) -> bool:
    return not any(isinstance(one, Miss) and one.reason is MissReason.TIER_DOWN for one in results)
