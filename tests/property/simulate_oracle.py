"""The simulation once more, the plain way: one dictionary entry a block, every list walked from end to end.

It shares with the product the planner, the words of a trace and how a budget is cut (``disk_size``), and none of the
rest: no tree, no places, no extents.
"""

from dataclasses import dataclass, field

from kvshelf_client.words import Provenance
from service.planner import request_for, resume_plan
from service.planner.base import Cached, Layout, ResumePlan, Snapshot
from service.simulate.disk import DiskSize
from service.simulate.options import SimulateOptions
from service.traces.base import Trace, TraceRequest

Key = int


@dataclass
class Record:
    """A block on the disk. ``depth`` is its number in its prompt, ``by`` that of the request that last used it."""

    key: Key
    depth: int
    exact: bool
    by: int
    at: float
    used: bool = False


@dataclass
class Bucket:
    """A segment: what is live in it, and how often it was written to."""

    records: list[Record] = field(default_factory=list)
    written: int = 0


class PlainDisk:
    """The SSD tier, record by record. ``size`` None: no budget."""

    def __init__(self, size: DiskSize | None, ttl: float, carrying: bool) -> None:
        self.size, self.ttl, self.carrying = size, ttl, carrying
        self.sealed: list[Bucket] = []
        self.active: Bucket | None = None
        self.stored = self.carried = self.evicted = self.refused = self.peak = 0

    def buckets(self) -> list[Bucket]:
        return self.sealed + ([self.active] if self.active else [])

    def find(self, key: Key) -> Record | None:
        return next((r for bucket in self.buckets() for r in bucket.records if r.key == key), None)

    def bucket_of(self, key: Key) -> Bucket | None:
        return next((bucket for bucket in self.buckets() for r in bucket.records if r.key == key), None)

    def expire(self, now: float) -> None:
        hurt = []
        for bucket in self.buckets():
            live = [r for r in bucket.records if now - r.at < self.ttl]
            if len(live) < len(bucket.records):
                hurt.append(bucket)
                bucket.records = live
        self.tidy()
        if self.active and not self.active.records:
            self.active = None
        if self.carrying and self.size:
            for bucket in [b for b in self.sealed if any(b is h for h in hurt)]:
                if len(bucket.records) <= self.size.sparse_records:
                    self.carry(bucket, list(bucket.records))

    def tidy(self) -> None:
        self.sealed = [bucket for bucket in self.sealed if bucket.records]

    def free(self) -> int:
        assert self.size
        return self.size.segments - len(self.buckets())

    def open(self, reserve: int) -> Bucket | None:
        if self.active is None or (self.size and self.active.written == self.size.segment_records):
            if self.size and self.free() <= reserve:
                return None
            if self.active:
                self.sealed.append(self.active)
                self.tidy()
            self.active = Bucket()
        return self.active

    def carry(self, source: Bucket, records: list[Record]) -> bool:
        for record in sorted(records, key=lambda r: (-r.by, r.depth)):
            target = self.open(0)
            if target is None:
                return False
            source.records.remove(record)
            record.used = False
            target.records.append(record)
            target.written += 1
            self.carried += 1
            self.tidy()
        return True

    def make_room(self, pinned: list[Bucket]) -> bool:
        assert self.size
        loose = [bucket for bucket in self.sealed if not any(bucket is p for p in pinned)]
        if not loose:
            return False
        sparsest = min(loose, key=lambda bucket: len(bucket.records))
        is_sparse = len(sparsest.records) <= self.size.sparse_records
        if self.carrying and is_sparse and self.carry(sparsest, list(sparsest.records)):
            return True
        oldest = loose[0]
        used = sorted((r for r in oldest.records if r.used), key=lambda r: (-r.by, r.depth))
        if self.carrying:
            self.carry(oldest, used[: self.size.sparse_records])
        self.evicted += len(oldest.records)
        oldest.records = []
        self.tidy()
        return True

    def fits(self, count: int) -> bool:
        if self.size is None:
            return True
        left = self.size.segment_records - self.active.written if self.active else 0
        if count <= left:
            return True
        segments = 0
        while count > left:
            segments, left = segments + 1, left + self.size.segment_records
        return self.free() >= segments + 1

    def store(self, path: list[Key], start: int, exact: bool, by: int, at: float, pinned: list[Bucket]) -> None:
        step = self.size.slice_records if self.size else max(1, len(path))
        for first in range(start, len(path), step):
            part = range(first, min(first + step, len(path)))
            for _ in range(4 * self.size.segments + 64 if self.size else 1):
                if self.fits(sum(not self.is_there(path[n], exact) for n in part)) or not self.make_room(pinned):
                    break
            for n in part:
                self.store_one(path[n], n, exact, by, at)
            self.peak = max(self.peak, sum(len(bucket.records) for bucket in self.buckets()))

    def is_there(self, key: Key, exact: bool) -> bool:
        old = self.find(key)
        return old is not None and (old.exact or not exact)

    def store_one(self, key: Key, depth: int, exact: bool, by: int, at: float) -> None:
        old = self.find(key)
        if old is not None and (old.exact or not exact):
            old.used, old.by, old.at = True, by, at
            return
        bucket = self.open(1)
        if bucket is None:
            self.refused += 1
            return
        if old is not None:
            home = self.bucket_of(key)
            assert home
            home.records.remove(old)
            self.tidy()
        bucket.records.append(Record(key, depth, exact, by, at))
        bucket.written += 1
        self.stored += 1

    def use(self, path: list[Key], by: int, at: float) -> None:
        for key in path:
            record = self.find(key)
            if record is not None:
                record.used, record.by, record.at = True, by, at


@dataclass
class Kept:
    """A snapshot."""

    exact: bool
    at: float
    supersedes: Key | None


class PlainPool:
    """The pool: a dictionary whose order is that of the last use. ``limit`` None: no budget."""

    def __init__(self, limit: int | None, ttl: float) -> None:
        self.limit, self.ttl = limit, ttl
        self.kept: dict[Key, Kept] = {}
        self.stored = self.evicted = self.peak = 0

    def expire(self, now: float) -> None:
        self.kept = {key: kept for key, kept in self.kept.items() if now - kept.at < self.ttl}

    def renew(self, key: Key, at: float) -> None:
        kept = self.kept.pop(key)
        kept.at = at
        self.kept[key] = kept

    def load(self, key: Key, at: float) -> None:
        self.renew(key, at)
        earlier = self.kept[key].supersedes
        if earlier in self.kept and (self.kept[key].exact or not self.kept[earlier].exact):
            del self.kept[earlier]

    def store(self, key: Key, exact: bool, supersedes: Key | None, at: float, held: Key | None) -> bool:
        if key in self.kept and (self.kept[key].exact or not exact):
            self.renew(key, at)
            return True
        self.kept.pop(key, None)
        if self.limit is not None and len(self.kept) >= self.limit:
            oldest = [other for other in self.kept if other != held]
            if not oldest or not self.limit:
                return False
            del self.kept[oldest[0]]
            self.evicted += 1
        self.kept[key] = Kept(exact, at, supersedes)
        self.stored += 1
        self.peak = max(self.peak, len(self.kept))
        return True


class PlainSimulation:
    """Plays a trace; ``plans`` are the answers, in order."""

    def __init__(
        self, trace: Trace, layout: Layout, options: SimulateOptions, size: DiskSize | None, limit: int | None
    ) -> None:
        self.trace, self.layout, self.options = trace, layout, options
        self.disk = PlainDisk(size, options.global_ttl_seconds, options.carry_forward)
        self.pool = PlainPool(limit, options.state_ttl_seconds)
        self.plans: list[ResumePlan] = []
        self.hit_tokens: list[int] = []
        self._keys: dict[tuple[object, int], Key] = {}
        self._previous: dict[tuple[object, ...], Key] = {}
        for number, request in enumerate(trace.requests):
            self._play(number, request)

    def _path(self, scope: str | None, ids: list[int]) -> list[Key]:
        path: list[Key] = []
        for block_id in ids:
            name = (path[-1] if path else scope, block_id)
            path.append(self._keys.setdefault(name, len(self._keys)))
        return path

    def _play(self, number: int, request: TraceRequest) -> None:
        layout, tokens, at = self.layout, self.layout.block_tokens, request.time_seconds
        self.disk.expire(at)
        self.pool.expire(at)
        path = self._path(request.scope, list(request.block_ids()))
        plan = self._plan(request, path)
        self.plans.append(plan)
        boundary = plan.load.snapshot_boundary
        loaded = path[boundary // tokens - 1] if boundary else None
        if loaded is not None:
            self.pool.load(loaded, at)
        held = [
            self.disk.bucket_of(key) for key in path[plan.load.global_start // tokens : plan.load.global_end // tokens]
        ]
        pinned = [bucket for bucket in held if bucket]
        floor = plan.write_floor // tokens
        if layout.block_bytes:
            self.disk.store(path, floor, plan.exact, number, at, pinned)
        policy = self.options.snapshots
        ends = [len(path)] if policy.at_prompt_end else []
        if policy.every_blocks:
            ends = [n for n in range(1, len(path) + 1) if n % policy.every_blocks == 0]
        for end in ends:
            if end and end >= floor:
                self._keep(request, path[end - 1], plan, loaded, "prompt")
        if policy.at_turn_end:
            turn = self._path(request.scope, self._turn(number, request))
            if layout.block_bytes:
                self.disk.store(turn, len(path), plan.exact, number, at, pinned)
            if len(turn) > len(path):
                self._keep(request, turn[-1], plan, loaded, "turn")
        if layout.block_bytes:
            self.disk.use(path[: plan.matched_tokens // tokens], number, at)

    def _plan(self, request: TraceRequest, path: list[Key]) -> ResumePlan:
        """All that is there is laid before the planner: every live snapshot of the path."""
        layout, tokens = self.layout, self.layout.block_tokens
        found = [self.disk.find(key) for key in path]
        reach = next((n for n, record in enumerate(found) if record is None), len(path))
        exact = next((n for n, record in enumerate(found) if record is None or not record.exact), len(path))
        snapshots = [
            Snapshot((n + 1) * tokens, Provenance.EXACT if self.pool.kept[key].exact else Provenance.REPLAYED)
            for n, key in enumerate(path)
            if key in self.pool.kept
        ]
        allowed = False if self.options.exact_only else None
        asked = request_for(layout, request.input_tokens, allow_approximate=allowed, supports=self.options.supports)
        self.hit_tokens.append(reach * tokens)
        return resume_plan(layout, asked, Cached(reach * tokens, exact * tokens, tuple(snapshots)))

    def _turn(self, number: int, request: TraceRequest) -> list[int]:
        ids = list(request.block_ids())
        tokens = request.input_tokens + request.output_tokens
        later = self.trace.requests[number + 1 :]
        following = next((one for one in later if one.session is not None and one.line == request.line), None)
        if following is not None and following.input_tokens >= tokens:
            next_ids = list(following.block_ids())
            if next_ids[: len(ids)] == ids:
                return next_ids[: tokens // request.block_tokens]
        return ids + [-1 - number * 1000 - n for n in range(tokens // request.block_tokens - len(ids))]

    def _keep(self, request: TraceRequest, key: Key, plan: ResumePlan, loaded: Key | None, kind: str) -> None:
        if key == loaded or not self.layout.state_layers:
            return
        line = (*request.line, kind)
        names = self.options.supersede and request.session is not None and not self.options.snapshots.every_blocks
        previous = self._previous.get(line) if names else None
        supersedes = previous if previous != key else None
        if self.pool.store(key, plan.exact, supersedes, request.time_seconds, loaded):
            self._previous[line] = key
