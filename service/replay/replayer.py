"""Replay a trace: for each request plan, fetch and check, "run", store what is new, release. One at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, ParamSpec, TypeVar

from kvshelf_client.answers import Namespace, PlanAnswer, Resume
from kvshelf_client.client import fallback_of
from kvshelf_client.errors import ServiceError
from kvshelf_client.frames import Frame, FrameKind
from kvshelf_client.requests import StoreRecord
from kvshelf_client.words import Provenance, RecordClass
from service.replay.errors import ReplayError, WrongBytesError
from service.replay.payloads import check_payload, payload_of
from service.replay.tally import Tally
from service.replay.target import Service
from service.traces.base import Trace, TraceRequest
from service.traces.chain import ChainHasher
from storage.clock import Clock

LEASE_GONE = "lease_gone"
"""What a fetch is counted as when its lease was over before it began."""
_GONE = 404
_STORE_RECORDS, _STORE_BYTES = 32_768, 64 << 20
"""What one store takes at most; more is sent in several."""
_KEPT = ("stored", "replaced", "duplicate")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay.

    Args:
        speed: 0 as fast as it goes; else the trace's times divided by this.
        durable: whether stores wait for the disk.
        plan_attempts: how often a request whose fetch had a miss is planned again before it runs cold.
        run_id: goes in front of every request id, so that each replay's requests are counted.
    """

    speed: float = 0.0
    durable: bool = True
    plan_attempts: int = 3
    run_id: str = "replay"


class _Name(NamedTuple):
    """What must be at one place of a fetch's stream."""

    kind: FrameKind
    key: bytes
    shard: int
    end_tokens: int


class Replayer:
    """Replays one trace. ``tally`` may be read at any time, also after an interrupt.

    Args:
        service: what to replay against.
        namespace: as registered there for this trace.
        trace: the requests.
        options: how to replay.
        clock: measures latencies and, with a speed, says when a request is due.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        service: Service,
        namespace: Namespace,
        trace: Trace,
        options: ReplayOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], object],
    ) -> None:
        self.tally = Tally()
        self._service = service
        self._namespace = namespace
        self._trace = trace
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._hasher = ChainHasher(namespace.fingerprint)
        self._snapshots: dict[tuple[str | None, str | None], bytes] = {}
        self._requests_left = Counter(request.session for request in trace.requests)

    def run(self, on_progress: Callable[[TraceRequest], None] | None = None) -> Tally:
        """Replay every request; ``on_progress`` is called after each.

        Raises:
            ReplayError: the service broke its contract, with a wrong byte or otherwise.
            KvshelfError: the service answered with an error, or not at all.
        """
        started = self._clock.monotonic()
        for number, request in enumerate(self._trace.requests):
            self._wait_for(request, started)
            self._replay(request, f"{self._options.run_id}-{number}")
            self._forget_if_over(request)
            self.tally.elapsed_seconds = self._clock.monotonic() - started
            if on_progress:
                on_progress(request)
        return self.tally

    def _wait_for(self, request: TraceRequest, started: float) -> None:
        if not self._options.speed:
            return
        early = started + request.time_seconds / self._options.speed - self._clock.monotonic()
        if early > 0:
            self._sleep(early)
        else:
            self.tally.max_lag_seconds = max(self.tally.max_lag_seconds, -early)

    def _replay(self, request: TraceRequest, request_id: str) -> None:
        """One request. Planning it again, under the same id, takes the place of the plan that could not be loaded."""
        hashes, keys = self._hasher.blocks_of(request)
        for attempt in range(self._options.plan_attempts + 1):
            plan = self._timed(
                "plan",
                self._service.plan,
                self._namespace.name,
                hashes=hashes,
                prompt_tokens=request.input_tokens,
                request_id=request_id,
                max_load_bytes_per_saved_token=0.0 if attempt == self._options.plan_attempts else None,
            )
            ran = self._load(plan, keys)
            if ran is not None:
                break
            self.tally.replans += 1
        else:
            raise ReplayError(f"request {request_id}: a plan that may load nothing had something to load")
        self._store(request, keys, ran)
        self._release(plan.lease.lease_id, "plan" if ran is plan.resume else "fallback")
        self.tally.finish(plan, ran)

    def _release(self, lease_id: str, ran: str) -> None:
        """End the request. When its lease is over, the service has ended it by itself, and by the same plan."""
        try:
            self._timed("release", self._service.release, lease_id, ran=ran)
        except ServiceError as error:
            if error.status != _GONE:
                raise
            self.tally.late_releases += 1

    def _load(self, plan: PlanAnswer, keys: list[bytes]) -> Resume | None:
        """Fetch what a plan loads and check it; returns what is then run, None when something was missing."""
        ran = plan.resume
        if not _loads(ran):
            return ran
        expected = self._names(ran, keys)
        complete = True
        try:
            for frame in self._timed_frames(self._service.fetch(plan.lease.lease_id)):
                if frame.header.kind is FrameKind.FALLBACK:
                    ran = fallback_of(frame)
                    expected = self._names(ran, keys)
                else:
                    complete &= self._take(frame, next(expected, None), ran)
        except ServiceError as error:
            if error.status != _GONE:
                raise
            self.tally.misses[LEASE_GONE] += 1
            return None
        if next(expected, None) is not None:
            raise ReplayError(f"plan {ran.plan_id}: the fetch ended before all of its records had come")
        return ran if complete else None

    def _take(self, frame: Frame, expected: _Name | None, ran: Resume) -> bool:
        """Check one frame; False for a miss."""
        header = frame.header
        found = _Name(header.kind, header.key, header.shard, header.end_tokens)
        if found != expected:
            raise ReplayError(f"plan {ran.plan_id}: the fetch sent {found} in the place of {expected}")
        if header.miss is not None:
            self.tally.misses[header.miss.value] += 1
            return False
        if ran.exact and header.provenance is not Provenance.EXACT:
            raise WrongBytesError(f"plan {ran.plan_id} is exact, but {header.key.hex()[:12]} came as replayed")
        check_payload(frame, self._payload_bytes(header.kind))
        self.tally.fetched(len(frame.payload))
        return True

    def _names(self, plan: Resume, keys: list[bytes]) -> Iterator[_Name]:
        """What a fetch of all shards sends: the snapshots first, then the blocks of shard after shard."""
        size, shards = self._trace.block_tokens, range(self._namespace.shards)
        boundary = plan.load.snapshot_boundary
        if boundary is not None:
            yield from (_Name(FrameKind.SNAPSHOT, keys[boundary // size - 1], shard, boundary) for shard in shards)
        for shard in shards:
            for index in range(plan.load.global_start // size, plan.load.global_end // size):
                yield _Name(FrameKind.BLOCK, keys[index], shard, (index + 1) * size)

    def _store(self, request: TraceRequest, keys: list[bytes], ran: Resume) -> None:
        """Store the new full blocks, and the snapshot at the last of them in place of the session's previous one."""
        line = (request.session, request.agent)
        records = self._records(keys, ran)
        previous = self._snapshots.get(line) if request.session is not None else None
        most = max(1, min(_STORE_RECORDS, _STORE_BYTES // max(1, self._namespace.block_bytes)))
        while batch := list(islice(records, most)):
            result = self._timed(
                "store",
                self._service.store,
                self._namespace.name,
                batch,
                plan_id=ran.plan_id,
                durable=self._options.durable,
                supersedes=previous if previous != keys[-1] else None,
            )
            self.tally.stored(result, self._namespace.block_bytes, self._namespace.snapshot_bytes)
            for outcome in result.outcomes:
                if outcome.record_class == "snapshot" and outcome.outcome in _KEPT:
                    self._snapshots[line] = outcome.key

    def _records(self, keys: list[bytes], ran: Resume) -> Iterator[StoreRecord]:
        """What a run has computed: blocks that end above the write floor, and the state at the last boundary.

        The state is not stored when it is the very snapshot that was loaded.
        """
        size, shards = self._trace.block_tokens, range(self._namespace.shards)
        computed = Provenance.EXACT if ran.exact else Provenance.REPLAYED
        places = [(RecordClass.BLOCK, index) for index in range(ran.write_floor // size, len(keys))]
        last = len(keys) * size
        if keys and last >= ran.write_floor and last != ran.load.snapshot_boundary:
            places.append((RecordClass.SNAPSHOT, len(keys) - 1))
        for record_class, index in places:
            length = self._payload_bytes(record_class)
            for shard in shards if length else ():
                payload = payload_of(record_class, keys[index], shard, computed, length)
                yield StoreRecord(record_class, keys[index], (index + 1) * size, payload, computed, shard)

    def _payload_bytes(self, kind: int) -> int:
        return self._namespace.block_bytes if kind == RecordClass.BLOCK else self._namespace.snapshot_bytes

    def _forget_if_over(self, request: TraceRequest) -> None:
        self._requests_left[request.session] -= 1
        if not self._requests_left[request.session]:
            self._hasher.forget(request.session)
            for line in [line for line in self._snapshots if line[0] == request.session]:
                del self._snapshots[line]

    def _timed(self, verb: str, call: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
        started = self._clock.monotonic()
        result = call(*arguments, **keywords)
        self.tally.latencies[verb].append(self._clock.monotonic() - started)
        return result

    def _timed_frames(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The frames, and as latency the time spent waiting for them: not that of checking them."""
        waited, monotonic = 0.0, self._clock.monotonic
        while True:
            started = monotonic()
            frame = next(frames, None)
            waited += monotonic() - started
            if frame is None:
                break
            yield frame
        self.tally.latencies["fetch"].append(waited)


def _loads(plan: Resume) -> bool:
    return plan.load.global_start < plan.load.global_end or plan.load.snapshot_boundary is not None
