"""The facts that findings and answers stand on: what happened in a window of time, and how it is now."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from service.access import ANYBODY
from service.overview.growth import Growth, growth
from service.overview.history import Kept
from service.overview.samples import Sample
from service.overview.words import duration
from service.shelf.condition import Health, health
from service.shelf.parts import Parts
from service.shelf.watched import ShelfState

WINDOW_SECONDS = 600.0
"""How far back findings look, as long as anybody asked in that time; else as far as there are samples."""


_FULL = 0.7
"""Of its budget a pool has in use, with one snapshot more, when what goes does so for want of room."""


class Shelf(NamedTuple):
    """A shelf: its state now and when the window began.

    ``crowded_out`` are the records that went while it was full: a Redis that is restarted or emptied loses some, too.
    ``snapshot_bytes`` is the largest snapshot of the namespaces that are kept on it, of all shards.
    """

    state: ShelfState
    before: ShelfState
    crowded_out: int
    snapshot_bytes: int = 0

    @property
    def evicted(self) -> int:
        """The records that went before their time in the window."""
        return self.state.evicted_records - self.before.evicted_records

    @property
    def refused(self) -> int:
        """The records that were refused in the window."""
        return self.state.refused_records - self.before.refused_records

    @property
    def is_full(self) -> bool:
        """Whether it has no room for a snapshot now."""
        return _is_full(self.state, self.snapshot_bytes)

    @property
    def name(self) -> str:
        """In words, of its tier."""
        what = "the pool" if self.state.tier == "dram" else "the SSD"
        return f"{what} of tenant {self.state.tenant}" if self.state.tenant else what

    @property
    def setting(self) -> str:
        """The setting that says how large it is."""
        group = "pool" if self.state.tier == "dram" else "store"
        tenant = self.state.tenant
        return f"access.tenants.{tenant}.{group}_budget_bytes" if tenant else f"{group}.budget_bytes"

    @property
    def share(self) -> float:
        """Of the budget that is filled; 0 where none is known."""
        return self.state.filled_bytes / self.state.budget_bytes if self.state.budget_bytes else 0.0


class Situation(NamedTuple):
    """All facts. ``grown`` are the counters' differences over ``seconds``; ``now`` has gauges and counters."""

    now: Sample
    grown: Sample
    seconds: float
    health: Health
    shelves: list[Shelf]
    growth: Growth
    when_full: str
    pool_is_redis: bool
    store_is_redis: bool

    @property
    def window(self) -> str:
        """In words."""
        return f"the last {duration(max(1.0, self.seconds))}"

    def grew(self, name: str) -> float:
        """By how much a counter grew."""
        return self.grown.get(name, 0.0)

    def of_tier(self, tier: str) -> list[Shelf]:
        """The shelves of a tier."""
        return [shelf for shelf in self.shelves if shelf.state.tier == tier]


def situation(parts: Parts, kept: Sequence[Kept], now: Kept) -> Situation:
    """The facts from samples in order and one of now. Looks up the namespaces."""
    in_window = window_of(kept, now)
    before = in_window[0]
    recent = [one for one in (*kept, now) if now.moment - one.moment <= WINDOW_SECONDS]
    return Situation(
        now=now.sample,
        grown={name: value - before.sample.get(name, 0.0) for name, value in now.sample.items()},
        seconds=now.moment - before.moment,
        health=health(parts),
        shelves=_shelves(parts, in_window),
        growth=growth(recent),
        when_full=parts.settings.store.when_full,
        pool_is_redis=parts.settings.pool.redis_url is not None,
        store_is_redis=parts.settings.store.redis_url is not None,
    )


def window_of(kept: Sequence[Kept], now: Kept) -> list[Kept]:
    """The samples of the last :data:`WINDOW_SECONDS`; all of them where nobody asked in those. The last is of now."""
    recent = [one for one in (*kept, now) if now.moment - one.moment <= WINDOW_SECONDS]
    return recent if _asked(now) > _asked(recent[0]) else [*kept, now]


def _asked(one: Kept) -> float:
    return one.sample.get("calls.plan", 0.0) + one.sample.get("requests", 0.0)


def _shelves(parts: Parts, in_window: Sequence[Kept]) -> list[Shelf]:
    own = {state.tenant for state in in_window[-1].shelves if state.tier == "dram"}
    largest: dict[str, int] = {}
    for namespace in parts.namespaces.list(ANYBODY):
        tenant = namespace.spec.tenant if namespace.spec.tenant in own else ""
        largest[tenant] = max(largest.get(tenant, 0), namespace.shard_snapshot_bytes * namespace.shards)
    return [
        _shelf(
            [state for one in in_window for state in one.shelves if state.key == last.key],
            largest.get(last.tenant, 0) if last.tier == "dram" else 0,
        )
        for last in in_window[-1].shelves
    ]


def _shelf(states: Sequence[ShelfState], snapshot_bytes: int) -> Shelf:
    """A Redis that evicts tells nobody: what is found missing after it was given more room went before that."""
    was_raised = 0 < states[0].budget_bytes < states[-1].budget_bytes
    crowded_out = sum(
        after.evicted_records - before.evicted_records
        for before, after in pairwise(states)
        if was_raised or _is_full(after, snapshot_bytes)
    )
    return Shelf(states[-1], states[0], crowded_out, snapshot_bytes)


def _is_full(state: ShelfState, snapshot_bytes: int) -> bool:
    return 0 < _FULL * state.budget_bytes <= state.used_bytes + snapshot_bytes
