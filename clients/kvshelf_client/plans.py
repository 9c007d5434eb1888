"""What an engine is told to do: the plan, and what of it is valid once some of its loads have failed. Pure."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from kvshelf_client.answers import Lease, Load, MissingGlobal, MissingSnapshot, Namespace, PlanAnswer, Resume
from kvshelf_client.errors import Fault
from kvshelf_client.hashing import bind_hashes, block_keys
from kvshelf_client.requests import OWN_HASH_SCHEME, AskPlan
from kvshelf_client.words import RecordClass


class Slot(NamedTuple):
    """A place for one record: the block, or the snapshot, of one shard that ends at ``end_tokens`` of the prompt."""

    record_class: RecordClass
    end_tokens: int
    shard: int = 0


@dataclass(frozen=True)
class Plan:
    """How one request resumes, and the lease that keeps what it loads.

    Without a lease there is nothing to fetch or to release: the service gave no answer (``fault`` says why), and
    ``resume`` is cold. ``hit_tokens`` is the stored prefix, uncapped; ``exact_hit_tokens`` the same counting exact
    blocks only. ``fallback`` is what to run when the snapshot turns out to be gone. ``node`` is the address of the node
    that has what it loads, of a plan made over :class:`~kvshelf_client.nodes.Nodes`.
    """

    namespace: Namespace
    ask: AskPlan
    resume: Resume
    fallback: Resume | None = None
    lease: Lease | None = None
    hit_tokens: int = 0
    exact_hit_tokens: int = 0
    missing_global: MissingGlobal | None = None
    missing_snapshot: MissingSnapshot | None = None
    fault: Fault | None = None
    node: str | None = None

    def at(self, node: str) -> "Plan":
        """The same plan, of that node."""
        return replace(self, node=node)

    @property
    def request_id(self) -> str:
        """The request's name. Plan again under it, and the request is counted once."""
        return self.ask.request_id

    @property
    def call_id(self) -> str:
        """What its calls are called in the service's log: its name, unless the caller gave another or it cannot be."""
        return self.ask.call_id

    @cached_property
    def keys(self) -> list[bytes]:
        """The keys of all full blocks of the prompt: what its records are fetched and stored under."""
        return keys_of(self.namespace, self.ask)

    def slots(self, resume: Resume, shard: int | None = None) -> list[Slot]:
        """What ``resume`` (this plan's, or its fallback) loads of a shard, or of all, in the order of arrival."""
        size, load = self.namespace.block_tokens, resume.load
        shards = range(self.namespace.shards) if shard is None else range(shard, shard + 1)
        slots = []
        if load.snapshot_boundary is not None:
            slots += [Slot(RecordClass.SNAPSHOT, load.snapshot_boundary, each) for each in shards]
        ends = range(load.global_start + size, load.global_end + 1, size)
        return slots + [Slot(RecordClass.BLOCK, end, each) for each in shards for end in ends]

    def settle(self, *, has_snapshot: bool, verified_tokens: int) -> Resume:
        """What may be run, given what has arrived and was found good.

        Where several ranks fetch, each its own shard, all of them must run the same: ``has_snapshot`` is whether all of
        them have theirs, and ``verified_tokens`` the least of theirs.

        Args:
            has_snapshot: the snapshot has come, and is good; of no meaning for a plan that loads none.
            verified_tokens: all blocks up to here are there, held or loaded.
        """
        resume = self.resume
        if not self.namespace.block_bytes:  # A model without global KV needs no blocks.
            verified_tokens = resume.prompt_tokens
        is_whole = has_snapshot and verified_tokens >= resume.load.global_end
        if resume.load.snapshot_boundary is not None and not is_whole:
            resume = self.fallback or cold(self.namespace, resume.prompt_tokens)
        if verified_tokens >= resume.load.global_end:
            return resume
        return _shortened(self.namespace, resume, verified_tokens)


def plan_of(namespace: Namespace, ask: AskPlan, answer: PlanAnswer) -> Plan:
    """A plan as the service answered it."""
    return Plan(
        namespace,
        ask,
        answer.resume,
        answer.fallback,
        answer.lease,
        answer.hit_tokens,
        answer.exact_hit_tokens,
        answer.missing_global,
        answer.missing_snapshot,
    )


def cold(namespace: Namespace, prompt_tokens: int) -> Resume:
    """Run everything. No plan of the service's stands for it, so it has no id."""
    return Resume(
        plan_id=None,
        mode="cold",
        exact=True,
        prompt_tokens=prompt_tokens,
        matched_tokens=0,
        run_start=0,
        write_floor=0,
        decoder_run_start=max(0, prompt_tokens - namespace.decoder_window_tokens),
        replayed_tokens=0,
        saved_tokens=0,
        held_tokens=0,
        load=Load(0, 0, None, 0, 0),
        tokens_by_source=_by_source(prompt_tokens, 0, 0, 0),
    )


def keys_of(namespace: Namespace, ask: AskPlan) -> list[bytes]:
    """The keys of a prompt's full blocks, from whatever it was asked by."""
    if ask.tokens is not None:
        return block_keys(namespace.fingerprint, memoryview(ask.tokens), namespace.block_tokens, ask.extra)
    joined = memoryview(ask.hashes or b"").cast("B").tobytes()
    hashes = [joined[start : start + 32] for start in range(0, len(joined), 32)]
    if namespace.hash_scheme == OWN_HASH_SCHEME:
        return hashes
    return bind_hashes(namespace.fingerprint, hashes, namespace.hashes_per_block)


def _shortened(namespace: Namespace, resume: Resume, matched: int) -> Resume:
    """The same way to resume, from less: the blocks up to ``matched``, which is below those that it would load.

    Only a mode that needs no state but what it computes itself can be shortened: it begins as far ahead of ``matched``
    as the whole one of its own. No plan of the service's stands for it, so it has no id.
    """
    if resume.mode not in ("full_attention", "bounded_replay", "exact_rebuild"):
        return cold(namespace, resume.prompt_tokens)
    start = matched - resume.replayed_tokens
    if start <= 0:
        return cold(namespace, resume.prompt_tokens)
    held = min(resume.held_tokens, matched)
    blocks = (matched - min(resume.load.global_start, matched)) // namespace.block_tokens
    return resume._replace(
        plan_id=None,
        matched_tokens=matched,
        run_start=start,
        write_floor=matched,
        saved_tokens=start,
        held_tokens=held,
        load=Load(
            min(resume.load.global_start, matched), matched, None, blocks * namespace.block_bytes * namespace.shards, 0
        ),
        tokens_by_source=_by_source(resume.prompt_tokens, matched, start, held),
    )


def _by_source(prompt: int, matched: int, start: int, held: int) -> dict[str, int]:
    hbm = min(held, start)
    return {"hbm": hbm, "dram": 0, "ssd": start - hbm, "replay": matched - start, "prefill": prompt - matched}
