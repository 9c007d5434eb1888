"""A replay against a real service hits, to the token, what an independent trie says an infinite cache would hit."""

from random import Random

import pytest

from service.replay.replayer import ReplayOptions
from service.replay.tally import MODES, SOURCES, Tally
from service.traces.base import Trace
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from tests.support.stage import Stage
from tests.support.traces import hit_tokens_of, request, trace_of


def _check_sums(tally: Tally, trace: Trace) -> None:
    assert tally.requests == len(trace.requests)
    assert tally.prompt_tokens == trace.input_tokens
    assert sum(tally.tokens_by_source.values()) == tally.prompt_tokens
    assert sum(tally.resumes.values()) == tally.requests
    assert tally.matched_tokens <= tally.hit_tokens
    assert tally.misses == {}
    assert tally.outcomes.keys() <= {"stored", "replaced", "duplicate"}


def test_the_sample_at_its_own_pace(stage: Stage) -> None:
    """Five minutes of snapshot life against waits of up to forty: states expire, global KV does not."""
    trace = read_trace(sample_path())
    tally = stage.replayer(trace, options=ReplayOptions(speed=1.0)).run()
    _check_sums(tally, trace)
    assert tally.hit_tokens == hit_tokens_of(trace)
    assert stage.clock.monotonic() == pytest.approx(trace.duration_seconds)
    assert 1 <= tally.resumes["cold"] <= 3, "the first session of each build; all others share its opening"
    assert tally.resumes["snapshot"] > 100
    assert tally.resumes["bounded_replay"] > 20
    assert 0 < tally.replayed_tokens <= 128 * tally.resumes["bounded_replay"]
    for source in SOURCES:
        counted = stage.metric("kvshelf_prompt_tokens_total", source=source)
        assert counted == tally.tokens_by_source[source], source
    for mode in MODES:
        counted = sum(stage.metric("kvshelf_resumes_total", mode=mode, exact=exact) for exact in ("true", "false"))
        assert counted == tally.resumes[mode], mode
    assert stage.metric("kvshelf_hit_tokens_total") == tally.hit_tokens
    assert stage.metric("kvshelf_requests_total") == tally.requests
    assert stage.parts.blocks.usage().pinned_bytes == 0, "every lease was released"


def test_without_waits_no_state_expires_and_superseded_snapshots_go(stage: Stage) -> None:
    """What stays is one or two of each session and sub-agent, and those nobody came back to after a rewrite."""
    trace = read_trace(sample_path(), sessions_limit=4)
    tally = stage.replayer(trace).run()
    _check_sums(tally, trace)
    assert tally.hit_tokens == hit_tokens_of(trace)
    assert tally.outcomes["stored"] > len(trace.requests)
    assert stage.parts.snapshots.usage().records < len(trace.requests) / 2


@pytest.mark.parametrize("profile", ["llama-3-8b/bf16", "mistral-7b-v0.1/bf16", "gpt-oss-20b/bf16"])
def test_other_kinds_of_models(stage: Stage, profile: str) -> None:
    """Full attention, nothing but windows, and windows that can only be rebuilt exactly."""
    trace = read_trace(sample_path(), sessions_limit=3)
    namespace = stage.register(trace, profile=profile)
    tally = stage.replayer(trace, namespace=namespace).run()
    assert tally.requests == len(trace.requests)
    assert tally.exact_resumes == tally.requests
    assert (namespace.block_bytes > 0) == (tally.hit_tokens == hit_tokens_of(trace))
    assert (namespace.snapshot_bytes > 0) == (tally.resumes["snapshot"] > 0)
    assert tally.misses == {}


@pytest.mark.parametrize("seed", range(4))
def test_random_traces(stage: Stage, seed: int) -> None:
    """Few ids and short prompts, so that every way two prompts can share a prefix comes up; some have no block."""
    rng = Random(seed)
    sessions = ["a", "b"] if seed % 2 else [None]
    trace = trace_of(
        [
            request(
                [rng.randint(0, 2) for _ in range(rng.randint(0, 8))],
                session=rng.choice(sessions),
                agent=rng.choice([None, "sub"]),
                rest=rng.randint(1, 63),
            )
            for _ in range(60)
        ]
    )
    assert any(not one.runs for one in trace.requests)
    tally = stage.replayer(trace).run()
    _check_sums(tally, trace)
    assert tally.hit_tokens == hit_tokens_of(trace)


def test_every_shard_is_stored_fetched_and_checked(stage: Stage) -> None:
    trace = read_trace(sample_path(), sessions_limit=2)
    one, four = (
        stage.replayer(trace, namespace=stage.register(trace, profile="llama-3-8b/bf16", shards=shards)).run()
        for shards in (1, 4)
    )
    assert one.hit_tokens == four.hit_tokens == hit_tokens_of(trace)
    assert four.fetched_records == 4 * one.fetched_records
    assert four.fetched_bytes == one.fetched_bytes


def test_a_replay_with_the_same_salt_finds_everything(stage: Stage) -> None:
    trace = read_trace(sample_path(), sessions_limit=2)
    first = stage.replayer(trace, options=ReplayOptions(run_id="first")).run()
    again = stage.replayer(trace, options=ReplayOptions(run_id="again")).run()
    other = stage.replayer(trace, namespace=stage.register(trace, salt="other")).run()
    assert again.hit_tokens == sum(one.full_blocks for one in trace.requests) * trace.block_tokens
    assert again.resumes["cold"] == 0
    assert other.hit_tokens == first.hit_tokens == hit_tokens_of(trace)


@pytest.mark.parametrize(("rest", "stored"), [(1, 0), (63, 0), (64, 2)])
def test_a_prompt_without_a_full_block_stores_nothing(stage: Stage, rest: int, stored: int) -> None:
    """One block makes a block and a snapshot."""
    tally = stage.replayer(trace_of([request([], rest=rest)] if rest < 64 else [request([1], rest=0)])).run()
    assert (tally.hit_tokens, tally.resumes["cold"], tally.outcomes["stored"]) == (0, 1, stored)
