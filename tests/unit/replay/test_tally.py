"""A replay's counts, as JSON and as tables."""

import json

import pytest

from kvshelf_client.answers import Lease, Load, Namespace, PlanAnswer, Resume, StoreOutcome, StoreResult
from kvshelf_client.plans import Plan, plan_of
from kvshelf_client.requests import AskPlan
from service.cli.replay_text import describe, summary
from service.planner.base import Mode, Source
from service.replay.tally import MODES, SOURCES, Tally

_KEYS_PROMISED = {
    "requests",
    "prompt_tokens",
    "hit_tokens",
    "matched_tokens",
    "tokens_by_source",
    "resumes",
    "replayed_tokens",
}


def _resume(mode: str = "bounded_replay", *, exact: bool = False) -> Resume:
    sources = {"hbm": 0, "dram": 0, "ssd": 640, "replay": 128, "prefill": 232}
    return Resume("p", mode, exact, 1000, 768, 640, 768, 872, 128, 640, 0, Load(0, 768, None, 9, 0), sources)


_NAMESPACE = Namespace("n", bytes(32), 128, 1, 1, 9, 9, 128, 20, 128, "kvshelf-sha256", created=True)


def _plan(resume: Resume, fallback: Resume | None = None) -> Plan:
    ask = AskPlan("n", 1000, "r", bytes(4000))
    return plan_of(_NAMESPACE, ask, PlanAnswer("r", resume, fallback, Lease("l", 60.0, 6), 896, 512, None, None))


def test_the_words_are_those_of_the_planner() -> None:
    assert tuple(Source) == SOURCES
    assert tuple(Mode) == MODES


def test_requests_add_up() -> None:
    tally = Tally()
    plain, exact, fallback = _resume(), _resume("snapshot", exact=True), _resume()
    tally.finish(_plan(plain), plain)
    tally.finish(_plan(exact), exact)
    tally.finish(_plan(exact, fallback), fallback)
    assert (tally.requests, tally.prompt_tokens, tally.hit_tokens, tally.exact_hit_tokens) == (3, 3000, 2688, 1536)
    assert (tally.matched_tokens, tally.replayed_tokens) == (2304, 384)
    assert (tally.exact_resumes, tally.fallbacks) == (1, 1)
    assert tally.tokens_by_source == {"hbm": 0, "dram": 0, "ssd": 1920, "replay": 384, "prefill": 696}
    assert {mode: n for mode, n in tally.resumes.items() if n} == {"bounded_replay": 2, "snapshot": 1}


def test_only_what_was_taken_in_counts_as_stored_bytes() -> None:
    tally = Tally()
    words = [("block", "stored"), ("block", "replaced"), ("block", "duplicate"), ("block", "refused")]
    words += [("snapshot", "stored"), ("snapshot", "lost")]
    outcomes = [StoreOutcome(bytes(32), 0, kind, outcome, None, None, 0) for kind, outcome in words]
    tally.stored(StoreResult(outcomes, {}, plan_known=True), block_bytes=10, snapshot_bytes=300)
    assert tally.stored_bytes == 320
    assert tally.outcomes == {"stored": 2, "replaced": 1, "duplicate": 1, "refused": 1, "lost": 1}


@pytest.mark.parametrize(
    ("latencies", "expected"),
    [
        ([], (0.0, 0.0, 0.0, 0.0)),
        ([3.0], (3.0, 3.0, 3.0, 3.0)),
        ([2.0, 1.0], (1.0, 2.0, 2.0, 2.0)),
        ([float(n) for n in range(1, 101)], (50.0, 95.0, 99.0, 100.0)),
        ([float(n) for n in range(1, 102)], (51.0, 96.0, 100.0, 101.0)),
    ],
)
def test_percentiles_are_nearest_rank(latencies: list[float], expected: tuple[float, ...]) -> None:
    tally = Tally()
    tally.latencies["plan"] += latencies
    assert tuple(tally.latency_seconds("plan").values()) == expected


def test_the_json_has_every_key_from_the_start() -> None:
    document = json.loads(json.dumps(Tally().document()))
    assert document.keys() >= _KEYS_PROMISED
    assert document["tokens_by_source"] == dict.fromkeys(SOURCES, 0)
    assert document["resumes"] == dict.fromkeys(MODES, 0)
    assert document["token_hit_rate"] == 0


def test_the_tables_show_what_happened() -> None:
    tally = Tally()
    tally.finish(_plan(_resume()), _resume())
    tally.fetched(1_350_000)
    tally.misses["evicted"] += 3
    tally.replans += 2
    tally.latencies["fetch"] += [0.0125]
    lines = [line.split() for line in describe(tally).splitlines()]
    for expected in (
        ["hit", "(stored", "prefix)", "896", "89.6%"],
        ["ssd", "640", "64.0%"],
        ["bounded_replay", "1", "100.0%"],
        ["fetched", "1", "1.35", "MB"],
        ["missed", "while", "fetching:", "evicted", "3"],
        ["planned", "again", "after", "a", "miss", "2"],
        ["fetch", "1", "12.50", "12.50", "12.50", "12.50"],
    ):
        assert expected in lines
    assert "snapshot" not in describe(tally), "modes that did not occur are left out"
    assert summary(tally) == "1 requests, 89.6% hit"


def test_the_tables_of_nothing() -> None:
    assert "-" in describe(Tally())
