"""What a replay does when a record is gone, bad or wrong by the time it is fetched."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Protocol

import pytest

from kvshelf_client.answers import PlanAnswer
from kvshelf_client.client import Client
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import ChecksumError, FrameError
from kvshelf_client.frames import Frame, FrameKind, checksum_of
from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.requests import Release
from kvshelf_client.transport import TransportOptions
from kvshelf_client.words import MissReason, Provenance, RecordClass
from service.replay.engine import LEASE_GONE
from service.replay.errors import WrongBytesError
from service.traces.base import TraceRequest
from service.traces.chain import ChainHasher
from tests.support.meddling import MeddlingTransport
from tests.support.stage import Stage
from tests.support.traces import BLOCK, hit_tokens_of, request, trace_of

Change = Callable[[Iterator[Frame]], Iterator[Frame]]


class Meddle(Protocol):
    """Makes a transport that meddles with a stage's service."""

    def __call__(
        self,
        *,
        after_plan: Callable[[PlanAnswer], None] = lambda plan: None,
        on_frames: Change = lambda frames: frames,
    ) -> MeddlingTransport: ...


@pytest.fixture
def meddling(stage: Stage) -> Iterator[Meddle]:
    with ExitStack() as made:

        def make(
            *,
            after_plan: Callable[[PlanAnswer], None] = lambda plan: None,
            on_frames: Change = lambda frames: frames,
        ) -> MeddlingTransport:
            transport = HttpTransport(stage.url, TransportOptions())
            made.callback(transport.close)
            return MeddlingTransport(transport, after_plan=after_plan, on_frames=on_frames)

        yield make


def _client(transport: MeddlingTransport) -> Client:
    return Client(transport, strict=True, budget_seconds=30)


_TRACE = trace_of([request(range(5)), request(range(9), time=1.0), request(range(12), time=2.0)])


def _times(count: int, change: Change) -> Change:
    """Apply a change to the first ``count`` fetches only."""
    left = iter(range(count))

    def apply(frames: Iterator[Frame]) -> Iterator[Frame]:
        return change(frames) if next(left, None) is not None else frames

    return apply


def _third_block_corrupt(frames: Iterator[Frame]) -> Iterator[Frame]:
    for number, frame in enumerate(frames):
        yield frame if number != 2 else frame._replace(header=frame.header._replace(miss=MissReason.CORRUPT))


def test_a_snapshot_that_is_gone_means_the_fallback(stage: Stage, meddling: Meddle) -> None:
    namespace = stage.register(_TRACE)
    keys = list(ChainHasher(namespace.fingerprint).blocks_of(_TRACE.requests[-1]).keys)

    def lose_snapshot(plan: PlanAnswer) -> None:
        boundary = plan.resume.load.snapshot_boundary
        if boundary is not None:
            stage.damage(namespace, RecordClass.SNAPSHOT, keys[boundary // BLOCK - 1])

    service = meddling(after_plan=lose_snapshot)
    tally = stage.replayer(_TRACE, namespace=namespace, client=_client(service)).run()
    assert tally.hit_tokens == hit_tokens_of(_TRACE)
    assert tally.fallbacks == 2
    assert (tally.resumes["snapshot"], tally.resumes["cold"]) == (0, 1)
    assert [ran for _, ran in service.released] == ["plan", "fallback", "fallback"]
    assert tally.misses == {}
    assert sum(tally.tokens_by_source.values()) == tally.prompt_tokens
    for source, tokens in tally.tokens_by_source.items():
        assert stage.metric("kvshelf_prompt_tokens_total", source=source) == tokens


def test_a_block_that_is_found_bad_is_run_again(stage: Stage, meddling: Meddle) -> None:
    namespace = stage.register(_TRACE)
    keys = list(ChainHasher(namespace.fingerprint).blocks_of(_TRACE.requests[-1]).keys)

    def damage_third(plan: PlanAnswer) -> None:
        if plan.hit_tokens == 5 * BLOCK:
            stage.damage(namespace, RecordClass.BLOCK, keys[2])

    service = meddling(after_plan=damage_third)
    tally = stage.replayer(_TRACE, namespace=namespace, client=_client(service)).run()
    assert [plan.hit_tokens // BLOCK for plan in service.plans] == [0, 5, 2, 9]
    assert tally.misses == {"corrupt": 1}
    assert tally.hit_tokens == hit_tokens_of(_TRACE) - 3 * BLOCK
    assert stage.metric("kvshelf_requests_total") == 3


def test_a_miss_while_fetching_is_planned_again(stage: Stage, meddling: Meddle) -> None:
    service = meddling(on_frames=_times(2, _third_block_corrupt))
    tally = stage.replayer(_TRACE, client=_client(service)).run()
    assert tally.misses == {"corrupt": 2}
    assert tally.replans == 2
    assert tally.requests == 3
    assert tally.hit_tokens == hit_tokens_of(_TRACE)
    assert len(service.plans) == 5
    assert len({plan.request_id for plan in service.plans}) == 3
    assert [lease for lease, _ in service.released] == [service.plans[n].lease.lease_id for n in (0, 2, 4)]
    assert tally.resumes["cold"] == 3, "what could not be loaded is not offered again"
    assert stage.parts.leases.records == 0, "planning again lets go of what was leased before"
    assert stage.metric("kvshelf_requests_total") == 3, "a request that is planned again is counted once"
    assert stage.metric("kvshelf_prompt_tokens_total", source="prefill") == tally.tokens_by_source["prefill"]


def test_a_request_that_can_never_be_loaded_runs_cold(stage: Stage, meddling: Meddle) -> None:
    service = meddling(on_frames=_times(99, _third_block_corrupt))
    tally = stage.replayer(_TRACE, client=_client(service)).run()
    assert (tally.resumes["cold"], tally.requests, tally.exact_resumes) == (3, 3, 3)
    assert tally.misses == {"corrupt": 2}
    assert tally.tokens_by_source["prefill"] == tally.prompt_tokens
    assert tally.outcomes["duplicate"] > 0, "a cold run offers again what is there"


def _release(stage: Stage, plan: PlanAnswer) -> None:
    transport = HttpTransport(stage.url, TransportOptions())
    transport.call(Release(plan.lease.lease_id), Deadline(10))
    transport.close()


def test_a_lease_that_is_over_is_planned_again(stage: Stage, meddling: Meddle) -> None:
    lost: list[str] = []

    def release_first(plan: PlanAnswer) -> None:
        if plan.hit_tokens and not lost:
            lost.append(plan.lease.lease_id)
            _release(stage, plan)

    tally = stage.replayer(_TRACE, client=_client(meddling(after_plan=release_first))).run()
    assert tally.misses == {LEASE_GONE: 1}
    assert (tally.replans, tally.requests, tally.late_releases) == (1, 3, 0)


def test_a_lease_that_ends_before_it_is_released_is_no_fault(stage: Stage, meddling: Meddle) -> None:
    """Nothing is fetched in the first request, so nobody notices sooner."""

    def release_first(plan: PlanAnswer) -> None:
        if not plan.hit_tokens:
            _release(stage, plan)

    tally = stage.replayer(_TRACE, client=_client(meddling(after_plan=release_first))).run()
    assert (tally.requests, tally.late_releases, tally.replans) == (3, 1, 0)
    assert tally.misses == {}
    assert stage.metric("kvshelf_requests_total") == 3


def _flipped(frames: Iterator[Frame]) -> Iterator[Frame]:
    """As if another payload had been stored: its checksum is right."""
    for frame in frames:
        frame.payload[-1] ^= 1
        yield frame._replace(header=frame.header._replace(checksum=checksum_of(frame.payload)))


def _damaged(frames: Iterator[Frame]) -> Iterator[Frame]:
    for number, frame in enumerate(frames):
        frame.payload[-1] ^= number == 2
        yield frame


def _called_replayed(frames: Iterator[Frame]) -> Iterator[Frame]:
    for frame in frames:
        yield frame._replace(header=frame.header._replace(provenance=Provenance.REPLAYED))


@pytest.mark.parametrize(
    ("change", "error"),
    [(_flipped, WrongBytesError), (_damaged, ChecksumError), (_called_replayed, FrameError)],
)
def test_a_wrong_byte_ends_the_replay(stage: Stage, change: Change, error: type[Exception], meddling: Meddle) -> None:
    """The first plan that loads something is exact, so its records must not be replayed ones either."""
    replayer = stage.replayer(_TRACE, client=_client(meddling(on_frames=change)))
    with pytest.raises(error):
        replayer.run()
    assert replayer.tally.requests == 1


def _short(frames: Iterator[Frame]) -> Iterator[Frame]:
    return islice(frames, 2)


def _doubled(frames: Iterator[Frame]) -> Iterator[Frame]:
    for frame in frames:
        yield from (frame, frame)


def _reversed(frames: Iterator[Frame]) -> Iterator[Frame]:
    return reversed(list(frames))


def _of_another_class(frames: Iterator[Frame]) -> Iterator[Frame]:
    for frame in frames:
        yield frame._replace(header=frame.header._replace(kind=FrameKind.SNAPSHOT))


@pytest.mark.parametrize("change", [_short, _doubled, _reversed, _of_another_class])
def test_a_stream_that_is_not_what_was_leased_ends_the_replay(stage: Stage, change: Change, meddling: Meddle) -> None:
    replayer = stage.replayer(_TRACE, client=_client(meddling(on_frames=change)))
    with pytest.raises(FrameError):
        replayer.run()
    assert replayer.tally.requests == 1


def test_an_interrupt_leaves_what_was_counted_so_far(stage: Stage) -> None:
    def interrupt(one: TraceRequest) -> None:
        if one.time_seconds == 1.0:
            raise KeyboardInterrupt

    replayer = stage.replayer(_TRACE)
    with pytest.raises(KeyboardInterrupt):
        replayer.run(interrupt)
    assert replayer.tally.requests == 2
