"""The verbs of a client, in steps; :class:`Client` and :class:`AsyncClient` run them.

Here is what makes a client harmless: unless it is strict, no verb raises for what the service or the network does. It
answers that there is nothing instead, and counts why.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict, TypeVar

from kvshelf_client import plausible, requests
from kvshelf_client.answers import HashedTokens, Health, Namespace, Resume, StoreResult
from kvshelf_client.circuit import BreakerState
from kvshelf_client.counters import Counters
from kvshelf_client.deadline import Deadline, monotonic
from kvshelf_client.errors import Fault, KvshelfError
from kvshelf_client.frames import KEY_BYTES, check_key
from kvshelf_client.guard import Guard, Steps
from kvshelf_client.landing import Landing, Loaded, Record
from kvshelf_client.names import check_name
from kvshelf_client.options import BUDGET_SECONDS, ClientOptions, check_budget, checked, transport_options
from kvshelf_client.plans import Plan, cold, plan_of
from kvshelf_client.request_ids import id_of_call
from kvshelf_client.requests import AskPlan, NamespaceSpec, Request, StoreRecord
from kvshelf_client.upload import body_length_bytes
from kvshelf_client.words import RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvshelf_client.landing import Destination

T = TypeVar("T")

_LOG = logging.getLogger("kvshelf_client")
_TOKEN_BYTES = 4
_TOKEN_FORMATS = frozenset("BbcIiLl")
"""Of a buffer's items, see :mod:`struct`: bytes, and integers in this machine's order or in the little-endian one."""
_MAX_REMEMBERED = 10_000


class PlanOptions(TypedDict, total=False):
    """What an engine holds and can do. What is left out takes the service's default for the namespace.

    ``hbm_tokens`` (the first so many tokens are held), ``hbm_exact_tokens`` (how many of them exactly), ``hbm_state``
    (the engine can itself resume at their end), ``allow_approximate``, ``supports`` (words of ``snapshot``,
    ``bounded_replay``, ``exact_rebuild``), ``max_load_bytes_per_saved_token`` (plans that cost more are left out; 0 for
    one that loads nothing), ``lease_ttl_seconds``, and ``extra``, bytes that go into every block's key.
    """

    hbm_tokens: int
    hbm_exact_tokens: int
    hbm_state: bool
    allow_approximate: bool
    supports: Sequence[str]
    max_load_bytes_per_saved_token: float
    lease_ttl_seconds: float
    extra: bytes


class Verbs:
    """What both clients have in common.

    Raises:
        ValueError: the address is none, or the token cannot be sent, or an option has a value of no meaning.
        TypeError: there is no such option. OSError: a TLS file is none.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = transport_options(checked(options))
        self._budget_seconds = options.get("budget_seconds", BUDGET_SECONDS)
        self._strict = options.get("strict", False)
        self._counters = Counters()
        self._guard = Guard(self._counters, monotonic, _chance, self._budget_seconds)
        self._lock = threading.Lock()
        self._failed: dict[tuple[str, str], None] = {}

    @property
    def breaker_state(self) -> BreakerState:
        """Whether calls are made, or end at once because the service does not answer."""
        return self._guard.state

    def counters(self) -> dict[str, dict[str, int]]:
        """What has become of all calls so far.

        By verb: ``ok``, a word of :class:`~kvshelf_client.errors.Fault`, and ``retried``. Under ``record``: ``hit``, or
        the reason of the miss. Of the ``breaker``: ``opened``, ``closed``.
        """
        return self._counters.snapshot()

    def _register(self, name: str, spec: NamespaceSpec, budget: float | None) -> "Steps[Namespace | None]":
        check_name(name)
        return self._or_none(requests.Register(name, spec), budget, partial(plausible.check_namespace, name, spec))

    def _hash_tokens(
        self, namespace: Namespace, tokens: "Buffer", budget: float | None
    ) -> "Steps[HashedTokens | None]":
        raw = _tokens(tokens)
        judge = partial(plausible.check_hashed, namespace, len(raw))
        return self._or_none(requests.HashTokens(namespace.name, raw), budget, judge)

    def _plan(
        self,
        namespace: Namespace,
        tokens: "Buffer | None",
        hashes: "Sequence[bytes] | Buffer | None",
        prompt_tokens: int | None,
        request_id: str | None,
        budget: float | None,
        options: "PlanOptions",
    ) -> Steps[Plan]:
        ask = _ask(namespace, tokens, hashes, prompt_tokens, request_id, options)
        if self._has_failed(ask):
            ask = _loading_nothing(ask)
        answer = yield from self._call(ask, budget, partial(plausible.check_plan, namespace, ask))
        if isinstance(answer, Fault):
            return Plan(namespace, ask, cold(namespace, ask.prompt_tokens), fault=answer)
        return plan_of(namespace, ask, answer)

    def _fetch_into(
        self, plan: Plan, destination: "Destination", shard: int | None, budget: float | None
    ) -> Steps[Loaded]:
        landing = Landing(plan, shard, destination)
        if plan.lease is None or not landing.is_needed:
            return landing.loaded(plan.fault, plan.call_id)
        deadline, fault, call_id = self._deadline(budget), None, id_of_call(plan.call_id)
        try:
            yield from self._fetch(plan.lease.lease_id, landing, shard, deadline, call_id)
        except KvshelfError as error:
            self._remember_failed(plan.ask)
            if self._strict and error.fault is not Fault.MISS:
                raise
            fault = error.fault
        loaded = landing.loaded(fault, call_id)
        self._count_records(loaded.records)
        return loaded

    def _count_records(self, records: Sequence[Record]) -> None:
        misses = [reason for _, reason, _ in records if reason is not None]
        if len(misses) < len(records):
            self._counters.add("record", "hit", len(records) - len(misses))
        for reason in misses:
            self._counters.add("record", reason)

    def _fetch(
        self, lease_id: str, landing: Landing, shard: int | None, deadline: Deadline, call_id: str
    ) -> Steps[None]:
        """Fetch the plan, or its fallback when a snapshot came that is bad."""
        try:
            yield from self._guard.call(requests.Fetch(lease_id, landing, shard, call_id=call_id), deadline, landing)
        except KvshelfError:
            if not landing.has_lost_snapshot:
                raise
            landing.restart()
            request = requests.Fetch(lease_id, landing, shard, fallback=True, call_id=call_id)
            yield from self._guard.call(request, deadline, landing)

    def _store(
        self,
        namespace: Namespace,
        records: Iterable[StoreRecord],
        ran: Resume | None,
        durable: bool,
        supersedes: bytes | None,
        budget: float | None,
    ) -> Steps[StoreResult]:
        if supersedes is not None:
            check_key(supersedes, "supersedes")
        listed = list(records)
        plan_id = None if ran is None else ran.plan_id
        request = requests.Store(namespace.name, listed, body_length_bytes(listed), plan_id, durable, supersedes)
        return self._store_listed(request, budget)

    def _store_listed(self, request: requests.Store, budget: float | None) -> Steps[StoreResult]:
        answer = yield from self._call(request, budget, partial(plausible.check_store, request.records))
        if isinstance(answer, Fault):
            answer = StoreResult([], {}, plan_known=False, fault=answer)
        return answer._replace(request_id=request.call_id)

    def _touch(
        self, namespace: Namespace, record_class: RecordClass, keys: Iterable[bytes], budget: float | None
    ) -> "Steps[int | None]":
        request = requests.TouchRecords(namespace.name, RecordClass(record_class), _checked(keys))
        return self._or_none(request, budget, partial(plausible.check_count, namespace, request.keys))

    def _delete(
        self, namespace: Namespace, record_class: RecordClass, keys: Iterable[bytes], budget: float | None
    ) -> "Steps[int | None]":
        request = requests.DeleteRecords(namespace.name, RecordClass(record_class), _checked(keys))
        return self._or_none(request, budget, partial(plausible.check_count, namespace, request.keys))

    def _renew(self, plan: Plan, budget: float | None) -> Steps[bool]:
        if plan.lease is None:
            return False
        request = requests.Renew(plan.lease.lease_id, call_id=id_of_call(plan.call_id))
        answer = yield from self._call(request, budget, partial(plausible.check_lease, plan.lease.lease_id))
        return not isinstance(answer, Fault)

    def _release(self, plan: Plan, ran: Resume, budget: float | None) -> Steps[bool]:
        with self._lock:
            self._failed.pop(_name_of(plan.ask), None)
        if plan.lease is None:
            return False
        request = requests.Release(plan.lease.lease_id, _word_for(plan, ran), call_id=id_of_call(plan.call_id))
        judge = partial(plausible.check_released, plan.resume.prompt_tokens)
        return not isinstance((yield from self._call(request, budget, judge)), Fault)

    def _stats(self, budget: float | None) -> "Steps[dict[str, object] | None]":
        return self._or_none(requests.Stats(), budget, plausible.check_stats)

    def _health(self, budget: float | None) -> Steps[Health]:
        answer = yield from self._call(requests.CheckHealth(), budget, plausible.check_health)
        return Health("down", [answer.value]) if isinstance(answer, Fault) else answer

    def _or_none(self, request: Request[T], budget: float | None, judge: Callable[[T], None]) -> "Steps[T | None]":
        answer = yield from self._call(request, budget, judge)
        return None if isinstance(answer, Fault) else answer

    def _call(self, request: Request[T], budget: float | None, judge: Callable[[T], None]) -> "Steps[T | Fault]":
        """Make a call; where it comes to nothing, and the client is not strict, the answer is the fault."""
        try:
            return (yield from self._guard.call(request, self._deadline(budget), judge=judge))
        except KvshelfError as error:
            if self._strict:
                raise
            log = _LOG.warning if error.fault in (Fault.REFUSED, Fault.DENIED, Fault.VERSION) else _LOG.debug
            log("%s came to nothing: %s", request.verb, error)
            return error.fault

    def _deadline(self, budget: float | None) -> Deadline:
        return Deadline(self._budget_seconds if budget is None else check_budget(budget))

    def _has_failed(self, ask: AskPlan) -> bool:
        with self._lock:
            return _name_of(ask) in self._failed

    def _remember_failed(self, ask: AskPlan) -> None:
        """What could not be loaded is not offered again to the same request: its next plan loads nothing."""
        with self._lock:
            self._failed[_name_of(ask)] = None
            while len(self._failed) > _MAX_REMEMBERED:
                del self._failed[next(iter(self._failed))]


def _name_of(ask: AskPlan) -> tuple[str, str]:
    return ask.namespace, ask.request_id


def _ask(
    namespace: Namespace,
    tokens: "Buffer | None",
    hashes: "Sequence[bytes] | Buffer | None",
    prompt_tokens: int | None,
    request_id: str | None,
    options: "PlanOptions",
) -> AskPlan:
    """A checked request for a plan; raises ValueError. The tokens are copied: keys are made of them later."""
    if (tokens is None) == (hashes is None) or (hashes is not None and prompt_tokens is None):
        raise ValueError("plan takes tokens, or hashes and prompt_tokens")
    name = os.urandom(16).hex() if request_id is None else request_id
    if tokens is None:
        return AskPlan(
            namespace.name, prompt_tokens or 0, name, None, _joined(hashes or b""), call_id=id_of_call(name), **options
        )
    raw = _tokens(tokens).tobytes()
    count = len(raw) // _TOKEN_BYTES
    if prompt_tokens not in (None, count):
        raise ValueError(f"prompt_tokens is {prompt_tokens}, but {count} tokens were given")
    return AskPlan(namespace.name, count, name, raw, call_id=id_of_call(name), **options)


def _loading_nothing(ask: AskPlan) -> AskPlan:
    return replace(ask, max_load_bytes_per_saved_token=0.0)


def _word_for(plan: Plan, ran: Resume) -> str:
    """What a release says was run; what is neither the plan nor its fallback counts as cold."""
    if ran.plan_id is not None and ran.plan_id == plan.resume.plan_id:
        return "plan"
    is_fallback = ran.plan_id is not None and plan.fallback is not None and ran.plan_id == plan.fallback.plan_id
    return "fallback" if is_fallback else "cold"


def _tokens(tokens: "Buffer") -> memoryview:
    """Token ids as raw u32 little-endian: bytes, or a contiguous array of 32-bit integers of this machine."""
    view = memoryview(tokens)
    if view.format.lstrip("@=<") not in _TOKEN_FORMATS or view.itemsize not in (1, _TOKEN_BYTES):
        raise ValueError(f"tokens are u32 little-endian, or bytes of them, not items of format {view.format!r}")
    if not view.c_contiguous or view.nbytes % _TOKEN_BYTES:
        raise ValueError(f"tokens are u32, one behind the other: {view.nbytes} bytes with strides {view.strides}")
    return view.cast("B")


def _joined(hashes: "Sequence[bytes] | Buffer") -> bytes:
    if isinstance(hashes, Sequence) and not isinstance(hashes, (bytes, bytearray, memoryview)):
        for index, each in enumerate(hashes):
            check_key(each, f"hashes[{index}]")
        return b"".join(hashes)
    joined = memoryview(hashes).tobytes()
    if len(joined) % KEY_BYTES:
        raise ValueError(f"hashes have {KEY_BYTES} bytes each, got {len(joined)} bytes")
    return joined


def _checked(keys: Iterable[bytes]) -> list[bytes]:
    listed = list(keys)
    for index, key in enumerate(listed):
        check_key(key, f"keys[{index}]")
    return listed


def _chance() -> float:
    return int.from_bytes(os.urandom(2), "little") / (1 << 16)
