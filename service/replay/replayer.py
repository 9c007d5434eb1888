"""Replay a trace: for each request plan, fetch and check, "run", store what is new, release. One at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ParamSpec, TypeVar

from kvshelf_client.answers import Namespace, Resume
from kvshelf_client.client import Client
from kvshelf_client.errors import ServiceError
from kvshelf_client.landing import NOT_FETCHED
from kvshelf_client.plans import Plan, Slot
from kvshelf_client.requests import StoreRecord
from kvshelf_client.words import Provenance, RecordClass
from service.replay.errors import ReplayError
from service.replay.payloads import check_payload, payload_of
from service.replay.tally import Tally
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
        run_id: goes in front of every request id, so that each replay's requests are counted.
    """

    speed: float = 0.0
    durable: bool = True
    run_id: str = "replay"


class Replayer:
    """Replays one trace. ``tally`` may be read at any time, also after an interrupt.

    Args:
        client: of what to replay against; strict, since a replay is to notice what an engine is spared.
        namespace: as registered there for this trace.
        trace: the requests.
        options: how to replay.
        clock: measures latencies and, with a speed, says when a request is due.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        client: Client,
        namespace: Namespace,
        trace: Trace,
        options: ReplayOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], object],
    ) -> None:
        self.tally = Tally()
        self._client = client
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
        """One request. When something could not be loaded, it is planned again: that plan loads nothing."""
        hashes, keys = self._hasher.blocks_of(request)
        plan = self._plan(request, request_id, hashes)
        ran = self._load(plan, keys)
        if ran is None:
            self.tally.replans += 1
            plan = self._plan(request, request_id, hashes)
            ran = plan.resume
            if _loads(ran):
                raise ReplayError(f"request {request_id}: a plan that may load nothing had something to load")
        self._store(request, keys, ran)
        self._release(plan, ran)
        self.tally.finish(plan, ran)

    def _plan(self, request: TraceRequest, request_id: str, hashes: list[bytes]) -> Plan:
        return self._timed(
            "plan",
            self._client.plan,
            self._namespace,
            hashes=hashes,
            prompt_tokens=request.input_tokens,
            request_id=request_id,
        )

    def _release(self, plan: Plan, ran: Resume) -> None:
        """End the request. When its lease is over, the service has ended it by itself, and by the same plan."""
        try:
            self._timed("release", self._client.release, plan, ran)
        except ServiceError as error:
            if error.status != _GONE:
                raise
            self.tally.late_releases += 1

    def _load(self, plan: Plan, keys: list[bytes]) -> Resume | None:
        """Fetch what a plan loads and check it; returns what is then run, None when something was missing."""
        if not _loads(plan.resume):
            return plan.resume
        payloads: dict[Slot, bytearray] = {}

        def room_for(slot: Slot) -> bytearray:
            payloads[slot] = bytearray(self._namespace.bytes_of(slot.record_class))
            return payloads[slot]

        try:
            loaded = self._timed("fetch", self._client.fetch_into, plan, room_for)
        except ServiceError as error:
            if error.status != _GONE:
                raise
            self.tally.misses[LEASE_GONE] += 1
            return None
        for slot, reason, provenance in loaded.records:
            if reason is None and provenance is not None:
                key = keys[slot.end_tokens // self._trace.block_tokens - 1]
                check_payload(slot.record_class, key, slot.shard, provenance, payloads[slot])
                self.tally.fetched(len(payloads[slot]))
            elif reason != NOT_FETCHED:
                self.tally.misses[str(reason)] += 1
        return loaded.resume if loaded.fault is None else None

    def _store(self, request: TraceRequest, keys: list[bytes], ran: Resume) -> None:
        """Store the new full blocks, and the snapshot at the last of them in place of the session's previous one."""
        line = (request.session, request.agent)
        records = self._records(keys, ran)
        previous = self._snapshots.get(line) if request.session is not None else None
        most = max(1, min(_STORE_RECORDS, _STORE_BYTES // max(1, self._namespace.block_bytes)))
        while batch := list(islice(records, most)):
            result = self._timed(
                "store",
                self._client.store,
                self._namespace,
                batch,
                ran=ran,
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
            length = self._namespace.bytes_of(record_class)
            for shard in shards if length else ():
                payload = payload_of(record_class, keys[index], shard, computed, length)
                yield StoreRecord(record_class, keys[index], (index + 1) * size, payload, computed, shard)

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


def _loads(plan: Resume) -> bool:
    return plan.load.global_start < plan.load.global_end or plan.load.snapshot_boundary is not None
