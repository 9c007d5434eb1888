"""An operator's questions, answered from two samples."""

import pytest

from service.overview.answers import Answer, answers
from service.overview.samples import Sample

HOUR = 3600.0
AT_REST: Sample = {
    "ttl.ssd": 72 * HOUR, "ttl.dram": 300.0, "retention": 72 * HOUR, "up.dram": 1.0,
    "used.ssd": 2.0**30, "budget.ssd": 10 * 2.0**30, "used.dram": 2.0**28, "budget.dram": 2.0**30,
    "disk_free": 100 * 2.0**30, "disk_size": 200 * 2.0**30,
}  # fmt: skip


def asked(number: int, before: Sample | None = None, seconds: float = 600.0, **now: float) -> Answer:
    """The answer to one question; dots in names are written as two underscores."""
    changed = {name.replace("__", "."): value for name, value in now.items()}
    return answers(AT_REST | (before or {}), AT_REST | changed, seconds)[number]


def test_nothing_happened() -> None:
    given = answers(AT_REST, AT_REST, 600.0)
    assert [answer.level for answer in given] == ["none", "none", "none", "good"]
    assert given[0].answer == "No request has finished in this time."
    assert "does not grow" in given[3].answer


def test_no_time_has_passed() -> None:
    assert [answer.level for answer in answers(AT_REST, AT_REST, 0.0)] == ["none", "none", "none", "good"]


def test_the_tier_that_serves_most_is_named_with_its_share() -> None:
    answer = asked(0, tokens__ssd=700.0, tokens__hbm=200.0, tokens__prefill=100.0)
    assert answer.answer == "The SSD: 70% of 1 thousand prompt tokens; hbm 20%, prefill 10%."
    assert answer.level == "good"
    assert asked(0, tokens__prefill=5e6).answer == "Prefill, which is no cache at all: 100% of 5 million prompt tokens."
    assert asked(0, tokens__prefill=5e6).level == "look"


def test_only_what_grew_counts() -> None:
    assert asked(0, {"tokens.hbm": 1e9}, tokens__hbm=1e9, tokens__ssd=10.0).answer.startswith("The SSD: 100%")


@pytest.mark.parametrize(
    ("reason", "said", "level"),
    [
        ("never_stored", "new text, or keys", "good"),
        ("expired", "later than its TTL of 3 days", "good"),
        ("evicted", "too small", "look"),
        ("corrupt", "damages records", "bad"),
        ("tier_down", "does not serve", "bad"),
    ],
)
def test_each_reason_has_its_advice(reason: str, said: str, level: str) -> None:
    now = AT_REST | {f"misses.block.{reason}": 50.0, "hits.block": 50.0}
    answer = answers(AT_REST, now, 600.0)[1]
    assert answer.answer.startswith("50% of the blocks looked up: ")
    assert said in answer.answer
    assert answer.level == level


def test_a_snapshot_that_expired_names_the_pools_ttl() -> None:
    assert "TTL of 5 min" in asked(1, misses__snapshot__expired=1.0).answer


@pytest.mark.parametrize(
    ("evicted", "level", "begins"),
    [(0.0, "good", "No: nothing"), (9.0, "good", "No: 0.9%"), (10.0, "look", "Yes: 1.0%"), (49.0, "look", "Yes: 4.9%"),
     (50.0, "bad", "Yes: 5.0%")],
)  # fmt: skip
def test_the_pool_is_too_small_when_it_evicts_what_is_asked_for(evicted: float, level: str, begins: str) -> None:
    answer = asked(2, hits__snapshot=1000.0 - evicted, misses__snapshot__evicted=evicted)
    assert (answer.level, answer.answer[: len(begins)]) == (level, begins)
    assert "25% of its 1 GiB is in use" in answer.answer


def test_a_pool_that_is_away_is_not_judged() -> None:
    assert asked(2, up__dram=0.0, misses__snapshot__tier_down=5.0).level == "bad"


def test_a_pool_whose_budget_is_not_known() -> None:
    assert "256 MiB is in use" in asked(2, budget__dram=0.0, hits__snapshot=1.0).answer


@pytest.mark.parametrize(("grown_gib", "level", "said"), [(1.0, "look", "in 90 min"), (0.05, "good", "in 30 h")])
def test_the_budget_is_reached_at_the_present_rate(grown_gib: float, level: str, said: str) -> None:
    answer = asked(3, {"used.ssd": (1 - grown_gib) * 2.0**30})
    assert said in answer.answer
    assert answer.level == level


def test_a_budget_that_is_spent_is_said_with_what_it_costs() -> None:
    answer = asked(3, retention=20 * HOUR)
    assert "the oldest blocks go after 20 h, not 3 days" in answer.answer
    assert answer.level == "look"


def test_a_file_system_with_less_room_than_the_budget_is_bad() -> None:
    assert asked(3, disk_free=9 * 2.0**30).level == "good"
    assert asked(3, disk_free=9 * 2.0**30 - 1).level == "bad"
