"""Single records of a tier that comes and goes: nothing is said of what is not known."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kvshelf_client.words import RecordClass
from service.namespaces import Namespace
from service.shelf import records
from service.shelf.parts import Parts
from service.shelf.records import TierDownError
from storage.base import Entry, Loaded, Miss, RecordId
from storage.clock import ManualClock
from tests.simulation.pool import RemotePool
from tests.support.service import make_parts, register
from tests.support.shelf import KEYS, fill

SNAPSHOTS = RecordClass.SNAPSHOT
Verb = Callable[[Parts, Namespace], object]
VERBS: dict[str, Verb] = {
    "look": lambda parts, namespace: records.look(parts, namespace, SNAPSHOTS, KEYS[0], 0),
    "read": lambda parts, namespace: records.read(parts, namespace, SNAPSHOTS, KEYS[0], 0),
    "touch": lambda parts, namespace: records.touch(parts, namespace, SNAPSHOTS, KEYS[:2]),
    "delete": lambda parts, namespace: records.delete(parts, namespace, SNAPSHOTS, KEYS[:2]),
    "delete_shard": lambda parts, namespace: records.delete_shard(parts, namespace, SNAPSHOTS, KEYS[0], 0),
}


class FlickeringPool(RemotePool):
    """A pool that is away for the next ``misses`` touches and deletes, and for nothing else."""

    misses = 0

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return 0 if self._is_missed() else super().touch(ids)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`."""
        return 0 if self._is_missed() else super().delete(ids, cause=cause)

    def _is_missed(self) -> bool:
        self.misses -= 1
        return self.misses >= 0


@pytest.fixture
def pool(clock: ManualClock) -> FlickeringPool:
    return FlickeringPool(clock=clock, ttl_seconds=300, budget_bytes=1 << 20, name="dram")


@pytest.fixture
def parts(tmp_path: Path, clock: ManualClock, pool: FlickeringPool) -> Iterator[Parts]:
    parts = make_parts(tmp_path, clock, snapshots=pool)
    yield parts
    parts.close()


@pytest.fixture
def namespace(parts: Parts) -> Namespace:
    namespace = register(parts, shards=2)
    fill(parts, namespace, SNAPSHOTS, [0])
    return namespace


@pytest.mark.parametrize("verb", VERBS)
def test_of_a_tier_that_is_away_nothing_is_known(
    parts: Parts, pool: FlickeringPool, namespace: Namespace, verb: str
) -> None:
    pool.is_away = True
    with pytest.raises(TierDownError, match="dram"):
        VERBS[verb](parts, namespace)
    pool.is_away = False
    assert isinstance(VERBS["look"](parts, namespace), Entry)


def test_of_a_tier_that_serves_all_is_known(parts: Parts, namespace: Namespace) -> None:
    assert isinstance(VERBS["read"](parts, namespace), Loaded)
    assert VERBS["touch"](parts, namespace) == 2
    assert records.touch(parts, namespace, SNAPSHOTS, [KEYS[0]] * 3) == 2, "a key that is named again is no other one"
    assert VERBS["delete_shard"](parts, namespace) is True
    assert VERBS["delete_shard"](parts, namespace) is False
    assert VERBS["touch"](parts, namespace) == 1
    assert VERBS["delete"](parts, namespace) == 1
    assert VERBS["delete"](parts, namespace) == VERBS["touch"](parts, namespace) == 0
    for verb in ("look", "read"):
        assert isinstance(VERBS[verb](parts, namespace), Miss)


@pytest.mark.parametrize(("verb", "known"), [("touch", 2), ("delete", 2), ("delete_shard", True)])
def test_a_tier_that_is_back_at_once_is_asked_again(
    parts: Parts, pool: FlickeringPool, namespace: Namespace, verb: str, known: object
) -> None:
    pool.misses = 1
    assert VERBS[verb](parts, namespace) == known


@pytest.mark.parametrize("verb", ["touch", "delete", "delete_shard"])
def test_a_tier_that_does_nothing_is_down_whatever_it_shows(
    parts: Parts, pool: FlickeringPool, namespace: Namespace, verb: str
) -> None:
    pool.misses = 2
    with pytest.raises(TierDownError):
        VERBS[verb](parts, namespace)
    assert isinstance(VERBS["look"](parts, namespace), Entry)
