"""Calls that come while a group is being written: one commit for all, and each hears what became of its own records."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.base import Record, WriteOutcome, WriteResult
from storage.ssd import SsdTier
from tests.support.records import look, make_records
from tests.support.served import eventually
from tests.support.ssd import BLOCK_BYTES, FaultySegmentFiles, SsdShelf, alive

SOON = 10.0


class SlowFiles(FaultySegmentFiles):
    """Segment files whose writes take until they are let go."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Event()

    def write(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """See :meth:`SegmentFiles.write`."""
        self.is_writing.set()
        assert self.may_write.wait(SOON)
        super().write(number, offset, images)


Written = Future[list[WriteResult]]


class Calls:
    """A tier on slow files, and calls of it from threads of their own."""

    def __init__(self, shelf: SsdShelf, pool: ThreadPoolExecutor) -> None:
        self.made: list[SlowFiles] = []
        self._pool = pool
        self.tier = shelf.open(memory_bytes=1 << 20, make_files=self._make)
        self.tier.write(make_records([999]), durable=True)

    @property
    def files(self) -> SlowFiles:
        """The files of the tier."""
        return self.made[-1]

    def _make(self, directory: Path) -> SlowFiles:
        self.made.append(SlowFiles(directory))
        return self.made[-1]

    @contextmanager
    def while_written(self, records: list[Record], *, durable: bool) -> Iterator[Written]:
        """A call whose bytes are on their way inside the block."""
        self.files.is_writing.clear()
        self.files.may_write.clear()
        first = self._pool.submit(self.tier.write, records, durable=durable)
        assert self.files.is_writing.wait(SOON)
        try:
            yield first
        finally:
            self.files.may_write.set()

    def behind(self, records: list[Record], *, durable: bool) -> Written:
        """A call that waits behind others by now."""
        waiting = self.tier._queue._waiting
        count = len(waiting)
        call = self._pool.submit(self.tier.write, records, durable=durable)
        eventually(lambda: len(waiting) == count + 1, SOON)
        return call


@pytest.fixture
def calls(shelf: SsdShelf) -> Iterator[Calls]:
    with ThreadPoolExecutor(4) as pool:
        yield Calls(shelf, pool)


def outcomes(call: Written) -> list[WriteOutcome]:
    return [result.outcome for result in call.result(SOON)]


def commits(tier: SsdTier) -> int:
    return tier._core.index.commits


@pytest.mark.parametrize("durable", [True, False])
def test_who_comes_while_a_group_is_written_shares_its_commit(calls: Calls, durable: bool) -> None:
    before = commits(calls.tier)
    with calls.while_written(make_records(range(3)), durable=durable) as first:
        second = calls.behind(make_records(range(3, 8)), durable=False)
        third = calls.behind(make_records([8]), durable=durable)
    assert outcomes(first) == [WriteOutcome.STORED] * 3
    assert outcomes(second) == [WriteOutcome.STORED] * 5
    assert outcomes(third) == [WriteOutcome.STORED]
    assert commits(calls.tier) == before + 1
    assert alive(calls.tier, range(9)) == list(range(9))


def test_a_call_that_is_to_be_durable_does_not_join_one_that_is_not(calls: Calls) -> None:
    before = commits(calls.tier)
    with calls.while_written(make_records(range(3)), durable=False):
        second = calls.behind(make_records(range(3, 8)), durable=True)
    assert outcomes(second) == [WriteOutcome.STORED] * 5
    assert commits(calls.tier) == before + 2
    assert calls.tier._core.index.is_durable(commits(calls.tier))


def test_a_call_for_which_room_would_have_to_be_made_does_not_join(calls: Calls) -> None:
    before, space = commits(calls.tier), calls.tier._core.space
    at_once = space.budget_bytes // 8 // (BLOCK_BYTES + 4096)
    with calls.while_written(make_records(range(2), size=BLOCK_BYTES), durable=False):
        second = calls.behind(make_records(range(2, 2 + at_once), size=BLOCK_BYTES), durable=False)
    assert outcomes(second) == [WriteOutcome.STORED] * at_once
    assert commits(calls.tier) >= before + 2


def test_what_joins_is_judged_after_what_is_there(calls: Calls) -> None:
    with calls.while_written(make_records(range(3)), durable=True) as first:
        second = calls.behind(make_records(range(1, 5)), durable=True)
    assert outcomes(second) == [WriteOutcome.DUPLICATE] * 2 + [WriteOutcome.STORED] * 2
    assert [one.generation for one in second.result()[:2]] == [one.generation for one in first.result()[1:]]


def test_what_joins_a_write_that_fails_fails_too_and_nothing_is_named(calls: Calls) -> None:
    with calls.while_written(make_records(range(3)), durable=True) as first:
        second = calls.behind(make_records(range(3, 5)), durable=True)
        calls.files.failing = frozenset({"sync"})
    assert outcomes(first) == [WriteOutcome.TIER_DOWN] * 3
    assert outcomes(second) == [WriteOutcome.TIER_DOWN] * 2
    calls.files.failing = frozenset()
    assert alive(calls.tier, range(5)) == []
    assert len(look(calls.tier, *range(5))) == 5
    calls.tier.check_integrity()
    assert [one.outcome for one in calls.tier.write(make_records(range(5)), durable=True)] == [WriteOutcome.STORED] * 5
