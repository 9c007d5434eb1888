"""What an answer must be like to be one to the question: looked at once, whatever transport it came over. Pure.

An engine that believed a wrong plan would run wrongly, so one whose numbers fit neither the question nor each other is
malformed, and as good as none.
"""

from collections.abc import Iterator, Mapping, Sequence

from kvshelf_client.answers import HashedTokens, Health, Lease, Namespace, PlanAnswer, Resume, StoreResult
from kvshelf_client.errors import AnswerError, StaleNamespaceError
from kvshelf_client.frames import KEY_BYTES
from kvshelf_client.requests import AskPlan, NamespaceSpec, StoreRecord
from kvshelf_client.words import RecordClass

_MOST_ID_CHARACTERS = 512
_HEALTHS = ("ok", "degraded", "down")
_ABLE = {"snapshot", "bounded_replay", "exact_rebuild"}
"""The modes that take an ability of the engine's, of the same name."""
_DEFAULT_ABILITIES = ("snapshot", "bounded_replay")

Doubts = Iterator[tuple[bool, str]]
"""Whether something is as it must be, and where in the answer it stands."""


def check_namespace(name: str, spec: NamespaceSpec, answer: Namespace) -> None:
    """Raises AnswerError when this is not what was registered."""
    _judge(_of_namespace(name, spec, answer))


def check_hashed(namespace: Namespace, tokens_bytes: int, answer: HashedTokens) -> None:
    """Raises AnswerError when these cannot be the keys, StaleNamespaceError when they are of another namespace."""
    _check_fingerprint(namespace, answer.fingerprint)
    blocks = tokens_bytes // 4 // namespace.block_tokens
    _judge(
        iter(
            [
                (answer.block_tokens == namespace.block_tokens, "block_tokens"),
                (len(answer.keys) == blocks and all(len(key) == KEY_BYTES for key in answer.keys), "keys"),
            ]
        )
    )


def check_plan(namespace: Namespace, ask: AskPlan, answer: PlanAnswer) -> None:
    """Raises AnswerError when this is no plan for that prompt, StaleNamespaceError when it is of another namespace."""
    if answer.fingerprint is not None:
        _check_fingerprint(namespace, answer.fingerprint)
    _judge(_of_plan(ask, answer))
    _judge(_of_resume(namespace, ask, answer.resume))
    if answer.fallback is not None:
        _judge(_of_resume(namespace, ask, answer.fallback), "fallback.")


def check_store(records: Sequence[StoreRecord], answer: StoreResult) -> None:
    """Raises AnswerError when there is not one outcome a record, in their order."""
    stored = [(record.key, record.shard, RecordClass(record.record_class).name.lower()) for record in records]
    outcomes = [(outcome.key, outcome.shard, outcome.record_class) for outcome in answer.outcomes]
    _judge(iter([(stored == outcomes, "outcomes"), (sum(answer.counts.values()) == len(stored), "counts")]))


def check_count(namespace: Namespace, keys: Sequence[bytes], answer: int) -> None:
    """Raises AnswerError when there cannot be so many records of these keys."""
    _judge(iter([(0 <= answer <= len(keys) * namespace.shards, "records")]))


def check_lease(lease_id: str, answer: Lease) -> None:
    """Raises AnswerError when this is another lease, or none that lives."""
    _judge(iter([(answer.lease_id == lease_id, "lease_id"), (answer.ttl_seconds > 0, "ttl_seconds")]))


def check_released(prompt_tokens: int, answer: Mapping[str, int] | None) -> None:
    """Raises AnswerError when other tokens were counted than the prompt's."""
    _judge(iter([(answer is None or sum(answer.values()) == prompt_tokens, "tokens_by_source")]))


def check_stats(answer: Mapping[str, object]) -> None:
    """Raises AnswerError when nothing is said."""
    _judge(iter([(bool(answer), "fields")]))


def check_health(answer: Health) -> None:
    """Raises AnswerError when the state is none."""
    _judge(iter([(answer.status in _HEALTHS, "status")]))


def _judge(doubts: Doubts, where: str = "") -> None:
    for is_fit, name in doubts:
        if not is_fit:
            raise AnswerError(f"answer.{where}{name} does not fit the question or the rest of the answer")


def _check_fingerprint(namespace: Namespace, fingerprint: bytes) -> None:
    if fingerprint != namespace.fingerprint:
        raise StaleNamespaceError(
            f"the service's namespace {namespace.name!r} is another one by now; register it again"
        )


def _of_namespace(name: str, spec: NamespaceSpec, answer: Namespace) -> Doubts:
    sizes = (answer.block_bytes, answer.snapshot_bytes)
    hash_tokens = spec.hash_block_tokens or spec.block_tokens
    yield answer.name == name, "name"
    yield len(answer.fingerprint) == KEY_BYTES, "fingerprint"
    yield answer.block_tokens == spec.block_tokens, "block_tokens"
    yield answer.shards == spec.shards, "shards"
    yield answer.hash_scheme == spec.hash_scheme, "hash_scheme"
    yield answer.hashes_per_block * hash_tokens == spec.block_tokens, "hashes_per_block"
    yield min(sizes) >= 0 and max(sizes) > 0, "block_bytes"
    yield min(answer.window_tokens, answer.state_layers, answer.decoder_window_tokens) >= 0, "window_tokens"


def _of_plan(ask: AskPlan, answer: PlanAnswer) -> Doubts:
    plan, fallback, lease = answer.resume, answer.fallback, answer.lease
    missing_global, missing_snapshot = answer.missing_global, answer.missing_snapshot
    yield answer.request_id == ask.request_id, "request_id"
    yield _is_id(lease.lease_id), "lease.lease_id"
    yield lease.ttl_seconds > 0, "lease.ttl_seconds"
    yield lease.records >= 0, "lease.records"
    yield _is_id(plan.plan_id), "plan.plan_id"
    yield 0 <= answer.exact_hit_tokens <= answer.hit_tokens <= ask.prompt_tokens, "hit_tokens"
    if missing_global is not None:
        yield 0 <= missing_global.tokens <= ask.prompt_tokens, "reasons.global"
    if missing_snapshot is not None:
        yield 0 <= missing_snapshot.boundary_tokens <= ask.prompt_tokens, "reasons.snapshot"
    if fallback is not None:
        yield _is_id(fallback.plan_id) and fallback.plan_id != plan.plan_id, "fallback.plan_id"
        yield fallback.load.snapshot_boundary is None, "fallback.load.snapshot"


def _of_resume(namespace: Namespace, ask: AskPlan, resume: Resume) -> Doubts:
    """In the order in which one stands on the other: what comes later may take for granted what came before."""
    replayed = _replayed_by_mode(namespace)
    supports = _DEFAULT_ABILITIES if ask.supports is None else ask.supports
    matched, prompt = resume.matched_tokens, ask.prompt_tokens
    most = prompt - max(1, namespace.decoder_window_tokens)
    yield resume.mode in replayed, "mode"
    yield resume.mode not in _ABLE or resume.mode in supports, "mode"
    yield resume.exact is True or resume.mode != "cold", "exact"
    yield resume.exact is False or resume.mode != "bounded_replay", "exact"
    yield resume.exact or ask.allow_approximate is not False, "exact"
    yield resume.prompt_tokens == prompt, "prompt_tokens"
    yield 0 <= matched <= max(0, most), "matched_tokens"
    yield resume.write_floor == matched, "write_floor"
    yield resume.replayed_tokens == replayed[resume.mode], "replayed_tokens"
    yield resume.run_start == resume.saved_tokens == matched - resume.replayed_tokens, "run_start"
    yield (resume.run_start == matched == 0) if resume.mode == "cold" else resume.run_start > 0, "run_start"
    yield resume.decoder_run_start == max(0, prompt - namespace.decoder_window_tokens), "decoder_run_start"
    yield 0 <= resume.held_tokens <= (ask.hbm_tokens or 0), "held_tokens"
    yield _fits_load(namespace, resume), "load"
    yield ask.max_load_bytes_per_saved_token != 0 or not _load_bytes(namespace, resume), "load_bytes"
    yield (resume.load.ssd_bytes + resume.load.dram_bytes) == _load_bytes(namespace, resume), "load_bytes"
    sources = resume.tokens_by_source.values()
    yield min(sources, default=-1) >= 0 and sum(sources) == prompt, "tokens_by_source"


def _replayed_by_mode(namespace: Namespace) -> dict[str, int]:
    """Of the modes that this model has, the tokens that are run again for the state."""
    replayed = {"resident": 0, "cold": 0}
    if not namespace.state_layers:
        return replayed | {"full_attention": 0}
    window = namespace.window_tokens
    return replayed | {"snapshot": 0, "bounded_replay": window, "exact_rebuild": namespace.state_layers * window}


def _fits_load(namespace: Namespace, resume: Resume) -> bool:
    """Whether all is loaded that is neither held nor run, and nothing else."""
    load, size, matched = resume.load, namespace.block_tokens, resume.matched_tokens
    is_loading = resume.mode != "resident" and namespace.block_bytes > 0
    held = min(resume.held_tokens, matched)
    start = held - held % size if is_loading else matched
    snapshot = matched if resume.mode == "snapshot" else None
    is_whole = resume.mode == "resident" or matched % size == 0
    return is_whole and (load.global_start, load.global_end, load.snapshot_boundary) == (start, matched, snapshot)


def _load_bytes(namespace: Namespace, resume: Resume) -> int:
    load = resume.load
    blocks = (load.global_end - load.global_start) // namespace.block_tokens
    snapshots = 0 if load.snapshot_boundary is None else 1
    return (blocks * namespace.block_bytes + snapshots * namespace.snapshot_bytes) * namespace.shards


def _is_id(text: str | None) -> bool:
    """Whether it can be sent back over every transport."""
    return text is not None and 0 < len(text) <= _MOST_ID_CHARACTERS and text.isascii() and text.isprintable()
