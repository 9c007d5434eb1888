"""One request as an engine would make it: plan, fetch and check, "run", store what is new, release."""

import threading
from collections.abc import Callable, Iterator
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
from service.replay.tally import READY, Tally
from service.traces.base import TraceRequest
from service.traces.chain import BlockKeys, ChainHasher
from storage.clock import Clock

LEASE_GONE = "lease_gone"
"""What a fetch is counted as when its lease was over before it began."""
_GONE = 404
_STORE_RECORDS, _STORE_BYTES = 32_768, 64 << 20
"""What one store takes at most; more is sent in several."""
_KEPT = ("stored", "replaced", "duplicate")

P = ParamSpec("P")
R = TypeVar("R")


class Engine:
    """Makes requests, several at a time, but of each line of a session one after the other.

    Args:
        client: of what to replay against; strict, since a replay is to notice what an engine is spared.
        namespace: as registered there for the trace.
        durable: whether stores wait for the disk.
        clock: measures latencies.
    """

    def __init__(self, client: Client, namespace: Namespace, *, durable: bool, clock: Clock) -> None:
        self.client, self.namespace, self.durable, self.clock = client, namespace, durable, clock
        self._lock = threading.Lock()
        self._hasher = ChainHasher(namespace.fingerprint)
        self.snapshots: dict[tuple[str | None, str | None], bytes] = {}
        """The key of each line's last snapshot."""

    def blocks_of(self, request: TraceRequest) -> BlockKeys:
        """See :meth:`ChainHasher.blocks_of`; the lists are the caller's."""
        with self._lock:
            hashes, keys = self._hasher.blocks_of(request)
            return BlockKeys(hashes.copy(), keys.copy())

    def forget(self, session: str | None) -> None:
        """Let go of a session that is over."""
        with self._lock:
            self._hasher.forget(session)
            for line in [line for line in self.snapshots if line[0] == session]:
                del self.snapshots[line]


class EngineRequest:
    """One request. ``tally`` counts it alone, also when it fails.

    Args:
        engine: makes it.
        request: what to send.
        request_id: its name with the service.
        intended: when it was to start, by the engine's clock. Its first latencies count from then, so that what it
            waited because others were slow is not left out.
    """

    def __init__(self, engine: Engine, request: TraceRequest, request_id: str, intended: float) -> None:
        self.tally = Tally()
        self.intended = intended
        self._engine, self._request, self._id = engine, request, request_id
        self._client, self._namespace, self._clock = engine.client, engine.namespace, engine.clock

    def run(self) -> None:
        """Make it. When something could not be loaded, it is planned again: that plan loads nothing.

        Raises:
            ReplayError: the service broke its contract, with a wrong byte or otherwise.
            KvshelfError: the service answered with an error, or not at all.
        """
        self.tally.max_lag_seconds = max(0.0, self._clock.monotonic() - self.intended)
        hashes, keys = self._engine.blocks_of(self._request)
        plan = self._plan(hashes, since=self.intended)
        ran = self._load(plan, keys)
        if ran is None:
            self.tally.replans += 1
            plan = self._plan(hashes, since=self._clock.monotonic())
            ran = plan.resume
            if _loads(ran):
                raise ReplayError(f"request {self._id}: a plan that may load nothing had something to load")
            self._is_ready()
        self._store(keys, ran)
        self._release(plan, ran)
        self.tally.finish(plan, ran)

    def _plan(self, hashes: list[bytes], since: float) -> Plan:
        plan = self._client.plan(
            self._namespace, hashes=hashes, prompt_tokens=self._request.input_tokens, request_id=self._id
        )
        self.tally.latencies["plan"].append(self._clock.monotonic() - since)
        return plan

    def _is_ready(self) -> None:
        self.tally.latencies[READY].append(self._clock.monotonic() - self.intended)

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
            self._is_ready()
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
        if loaded.fault is None:
            self._is_ready()
        for slot, reason, provenance in loaded.records:
            if reason is None and provenance is not None:
                key = keys[slot.end_tokens // self._request.block_tokens - 1]
                check_payload(slot.record_class, key, slot.shard, provenance, payloads[slot])
                self.tally.fetched(len(payloads[slot]))
            elif reason != NOT_FETCHED:
                self.tally.misses[str(reason)] += 1
        return loaded.resume if loaded.fault is None else None

    def _store(self, keys: list[bytes], ran: Resume) -> None:
        """Store the new full blocks, and the snapshot at the last of them in place of the session's previous one."""
        line, snapshots = self._request.line, self._engine.snapshots
        records = self._records(keys, ran)
        previous = snapshots.get(line) if self._request.session is not None else None
        most = max(1, min(_STORE_RECORDS, _STORE_BYTES // max(1, self._namespace.block_bytes)))
        while batch := list(islice(records, most)):
            result = self._timed(
                "store",
                self._client.store,
                self._namespace,
                batch,
                ran=ran,
                durable=self._engine.durable,
                supersedes=previous if previous != keys[-1] else None,
            )
            self.tally.stored(result, self._namespace.block_bytes, self._namespace.snapshot_bytes)
            for outcome in result.outcomes:
                if outcome.record_class == "snapshot" and outcome.outcome in _KEPT:
                    snapshots[line] = outcome.key

    def _records(self, keys: list[bytes], ran: Resume) -> Iterator[StoreRecord]:
        """What a run has computed: blocks that end above the write floor, and the state at the last boundary.

        The state is not stored when it is the very snapshot that was loaded.
        """
        size, shards = self._request.block_tokens, range(self._namespace.shards)
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

    def _timed(self, verb: str, call: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
        started = self._clock.monotonic()
        result = call(*arguments, **keywords)
        self.tally.latencies[verb].append(self._clock.monotonic() - started)
        return result


def _loads(plan: Resume) -> bool:
    return plan.load.global_start < plan.load.global_end or plan.load.snapshot_boundary is not None
