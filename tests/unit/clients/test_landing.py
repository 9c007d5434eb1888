"""Where a fetch lands: only what came whole, in order and good counts, and what may be run follows from it."""

from collections.abc import Callable
from typing import Any

import pytest

from kvshelf_client import Client, Fault, Loaded, Plan, Slot
from kvshelf_client.answers import Lease, PlanAnswer
from kvshelf_client.errors import ChecksumError, FrameError, UnreachableError
from kvshelf_client.frames import FrameKind
from kvshelf_client.landing import NO_BUFFER, NOT_FETCHED
from kvshelf_client.requests import Fetch
from kvshelf_client.words import MissReason, Provenance, RecordClass
from tests.support.client import Buffers
from tests.support.scripted_transport import ScriptedTransport
from tests.support.wire import (
    BLOCK_BYTES,
    NAMESPACE,
    block_frame,
    fallback_frame,
    payload_of,
    plan_for,
    resume,
    snapshot_answer,
    snapshot_frame,
)

BLOCKS_PLAN = plan_for(PlanAnswer("r", resume(), None, Lease("l1", 60.0, 4), 256, 0, None, None))
SNAPSHOT_PLAN = plan_for(snapshot_answer())
ALL_BLOCKS = b"".join(map(block_frame, range(4)))


def bad(frame: bytes) -> bytes:
    """The frame with its last byte changed."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def fetch(plan: Plan, *outcomes: Any) -> tuple[Loaded, Buffers, ScriptedTransport]:
    transport, buffers = ScriptedTransport(*outcomes), Buffers(plan.namespace)
    return Client(transport, budget_seconds=5).fetch_into(plan, buffers), buffers, transport


def reasons(loaded: Loaded) -> list[str | None]:
    return [record.reason for record in loaded.records]


def test_all_is_there() -> None:
    loaded, buffers, transport = fetch(BLOCKS_PLAN, ALL_BLOCKS)
    assert loaded.resume is BLOCKS_PLAN.resume
    assert (loaded.fault, loaded.verified_tokens) == (None, 256)
    assert [record.slot.end_tokens for record in loaded.records] == [64, 128, 192, 256]
    assert {record.provenance for record in loaded.records} == {Provenance.EXACT}
    assert reasons(loaded) == [None] * 4
    assert [bytes(buffers.of[record.slot]) for record in loaded.records] == [payload_of(n) for n in range(4)]
    (asked,) = transport.asked
    assert isinstance(asked, Fetch)
    assert (asked.lease_id, asked.shard, asked.fallback) == ("l1", None, False)


def test_the_snapshot_and_the_blocks() -> None:
    loaded, _, _ = fetch(SNAPSHOT_PLAN, snapshot_frame() + ALL_BLOCKS)
    assert loaded.resume is SNAPSHOT_PLAN.resume
    assert loaded.has_snapshot
    assert [record.slot.record_class for record in loaded.records] == [RecordClass.SNAPSHOT] + [RecordClass.BLOCK] * 4


@pytest.mark.parametrize("number", range(4))
def test_what_is_behind_a_bad_block_is_of_no_use(number: int) -> None:
    frames = [block_frame(each) for each in range(4)]
    frames[number] = bad(frames[number])
    loaded, _, _ = fetch(BLOCKS_PLAN, b"".join(frames))
    assert loaded.fault is Fault.CORRUPT
    assert reasons(loaded) == [None] * number + ["corrupt"] + [NOT_FETCHED] * (3 - number)
    assert loaded.verified_tokens == number * 64
    assert (loaded.resume.mode, loaded.resume.plan_id) == ("bounded_replay" if number > 1 else "cold", None)
    assert loaded.resume.run_start == max(0, number * 64 - 64)


def test_a_miss_ends_the_fetch_before_its_filler() -> None:
    frames = block_frame(0) + block_frame(1, miss=MissReason.EVICTED, checksum=1) + block_frame(2)
    loaded, buffers, _ = fetch(BLOCKS_PLAN, frames)
    assert loaded.fault is Fault.MISS
    assert reasons(loaded) == [None, "evicted", NOT_FETCHED, NOT_FETCHED]
    assert list(buffers.of) == [Slot(RecordClass.BLOCK, 64)], "nobody was asked for a buffer that is not filled"


def test_a_snapshot_that_is_gone_is_the_fallback() -> None:
    loaded, _, _ = fetch(SNAPSHOT_PLAN, fallback_frame() + ALL_BLOCKS)
    assert loaded.resume is SNAPSHOT_PLAN.fallback
    assert (loaded.fault, loaded.has_snapshot, loaded.verified_tokens) == (None, False, 256)


def test_a_snapshot_that_came_bad_is_asked_for_as_the_fallback() -> None:
    loaded, _, transport = fetch(SNAPSHOT_PLAN, bad(snapshot_frame()) + ALL_BLOCKS, fallback_frame() + ALL_BLOCKS)
    assert loaded.resume is SNAPSHOT_PLAN.fallback
    assert loaded.fault is None
    assert [asked.fallback for asked in transport.asked if isinstance(asked, Fetch)] == [False, True]


def test_a_bad_snapshot_and_then_a_bad_block() -> None:
    loaded, _, _ = fetch(
        SNAPSHOT_PLAN, bad(snapshot_frame()), fallback_frame() + block_frame(0) + block_frame(1) + bad(block_frame(2))
    )
    assert loaded.fault is Fault.CORRUPT
    assert (loaded.resume.mode, loaded.resume.matched_tokens, loaded.resume.run_start) == ("bounded_replay", 128, 64)


def test_a_good_snapshot_is_of_no_use_without_all_its_blocks() -> None:
    loaded, _, _ = fetch(SNAPSHOT_PLAN, snapshot_frame() + block_frame(0) + block_frame(1) + bad(block_frame(2)))
    assert loaded.has_snapshot
    assert (loaded.resume.mode, loaded.resume.exact, loaded.resume.matched_tokens) == ("bounded_replay", False, 128)


def test_no_snapshot_at_all_is_not_taken_for_one() -> None:
    """All its blocks are held, so the snapshot is all that is to come; and it does not."""
    primary = resume("snapshot", snapshot=True, held=4)
    fallback = resume(held=4, plan_id="p2")
    plan = plan_for(PlanAnswer("r", primary, fallback, Lease("l1", 60.0, 1), 256, 256, None, None))
    loaded, _, _ = fetch(plan, *[UnreachableError("gone")] * 3)
    assert loaded.resume is fallback
    assert (loaded.has_snapshot, loaded.verified_tokens, loaded.fault) == (False, 256, Fault.UNREACHABLE)


def test_a_fetch_that_breaks_off_keeps_what_it_has_when_it_is_tried_again() -> None:
    buffers = Buffers(NAMESPACE)
    asked_for: list[Slot] = []

    def buffer_of(slot: Slot) -> bytearray:
        asked_for.append(slot)
        return buffers(slot)

    first = [block_frame(0) + block_frame(1), UnreachableError("cut")]
    transport = ScriptedTransport(first, ALL_BLOCKS)
    loaded = Client(transport, budget_seconds=5).fetch_into(BLOCKS_PLAN, buffer_of)
    assert loaded.resume is BLOCKS_PLAN.resume
    assert [slot.end_tokens for slot in asked_for] == [64, 128, 192, 256]
    assert [bytes(buffers.of[record.slot]) for record in loaded.records] == [payload_of(n) for n in range(4)]


def test_a_fetch_that_breaks_off_for_good() -> None:
    cut = [block_frame(0) + block_frame(1), UnreachableError("cut")]
    loaded, _, _ = fetch(BLOCKS_PLAN, cut, [block_frame(0), UnreachableError("cut")], UnreachableError("cut"))
    assert loaded.fault is Fault.UNREACHABLE
    assert reasons(loaded) == [None, None, NOT_FETCHED, NOT_FETCHED]
    assert (loaded.resume.mode, loaded.resume.matched_tokens) == ("bounded_replay", 128)


@pytest.mark.parametrize("number", range(5))
def test_a_record_without_a_buffer_ends_the_fetch(number: int) -> None:
    given = {Slot(RecordClass.BLOCK, (each + 1) * 64): bytearray(BLOCK_BYTES) for each in range(number)}
    loaded = Client(ScriptedTransport(ALL_BLOCKS)).fetch_into(BLOCKS_PLAN, given)
    assert loaded.verified_tokens == number * 64
    assert reasons(loaded) == [None] * number + ([NO_BUFFER] + [NOT_FETCHED] * 4)[: 4 - number]


@pytest.mark.parametrize("buffer", [bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES - 1), bytearray(BLOCK_BYTES + 1)])
def test_a_buffer_that_does_not_fit_is_a_mistake_of_the_caller(buffer: bytes | bytearray) -> None:
    with pytest.raises(ValueError, match="needs a writable buffer of 640 bytes"):
        Client(ScriptedTransport(ALL_BLOCKS)).fetch_into(BLOCKS_PLAN, lambda slot: buffer)


WRONG: dict[str, Callable[[], bytes]] = {
    "too few": lambda: block_frame(0),
    "too many": lambda: ALL_BLOCKS + block_frame(4),
    "another order": lambda: block_frame(1) + block_frame(0),
    "another key": lambda: block_frame(0, key=b"k" * 32),
    "another end": lambda: block_frame(0, end_tokens=128),
    "another shard": lambda: block_frame(0, shard=1),
    "another class": lambda: block_frame(0, kind=FrameKind.SNAPSHOT),
    "a fallback": lambda: fallback_frame() + ALL_BLOCKS,
}


@pytest.mark.parametrize("what", WRONG)
def test_anything_else_than_what_the_plan_loads_is_refused(what: str) -> None:
    loaded, _, _ = fetch(BLOCKS_PLAN, WRONG[what]())
    assert loaded.fault is Fault.MALFORMED
    with pytest.raises(FrameError):
        Client(ScriptedTransport(WRONG[what]()), strict=True).fetch_into(BLOCKS_PLAN, Buffers(NAMESPACE))


def test_another_length_is_refused() -> None:
    namespace = NAMESPACE._replace(block_bytes=BLOCK_BYTES + 1)
    loaded, _, _ = fetch(plan_for(snapshot_answer(), namespace), snapshot_frame() + ALL_BLOCKS)
    assert loaded.fault is Fault.MALFORMED


def test_an_exact_plan_takes_no_replayed_record() -> None:
    frames = snapshot_frame() + block_frame(0, provenance=Provenance.REPLAYED)
    loaded, _, _ = fetch(SNAPSHOT_PLAN, frames)
    assert (loaded.fault, loaded.verified_tokens) == (Fault.MALFORMED, 0)


@pytest.mark.parametrize("document", [b'{"plan_id": "p3"}', b"{}", b"nonsense", b'{"plan_id": "p1"}'])
def test_a_fallback_that_is_not_the_plans_is_refused(document: bytes) -> None:
    loaded, _, _ = fetch(SNAPSHOT_PLAN, fallback_frame(document) + ALL_BLOCKS)
    assert loaded.fault is Fault.MALFORMED
    assert loaded.resume.mode == "cold"


def test_a_strict_client_raises_for_a_bad_payload_and_not_for_a_miss() -> None:
    missed = block_frame(0, miss=MissReason.EXPIRED)
    transport = ScriptedTransport(bad(ALL_BLOCKS), missed)
    client = Client(transport, strict=True)
    with pytest.raises(ChecksumError):
        client.fetch_into(BLOCKS_PLAN, Buffers(NAMESPACE))
    assert client.fetch_into(BLOCKS_PLAN, Buffers(NAMESPACE)).fault is Fault.MISS


def test_nothing_is_sent_where_nothing_is_to_be_loaded() -> None:
    plan = plan_for(PlanAnswer("r", resume(held=4), None, Lease("l1", 60.0, 0), 256, 0, None, None))
    loaded, _, transport = fetch(plan)
    assert loaded.resume is plan.resume
    assert (loaded.records, transport.asked) == ([], [])


def test_a_transport_may_bring_a_bad_record_once_more() -> None:
    frames = block_frame(0) + bad(block_frame(1)) + block_frame(1) + block_frame(2) + block_frame(3)
    loaded, _, _ = fetch(BLOCKS_PLAN, frames)
    assert loaded.resume is BLOCKS_PLAN.resume


def test_records_are_counted() -> None:
    client = Client(ScriptedTransport(ALL_BLOCKS, block_frame(0) + bad(block_frame(1))))
    for _ in range(2):
        client.fetch_into(BLOCKS_PLAN, Buffers(NAMESPACE))
    assert client.counters() == {
        "fetch": {"ok": 1, "corrupt": 1},
        "record": {"hit": 5, "corrupt": 1, "not_fetched": 2},
    }
