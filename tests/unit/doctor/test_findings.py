"""Figures in, findings out."""

from typing import Any

import pytest

from service.doctor.findings import Finding, Severity, findings

HOUR = 3600.0
WELL = {
    "calls.plan": 1000.0, "requests": 1000.0, "took.plan.0.05": 1000.0, "hits.block": 900.0,
    "misses.block.never_stored": 100.0,
    "hit_tokens": 900.0, "hits.snapshot": 100.0, "stores.block.stored": 1000.0, "stores.snapshot.stored": 100.0,
    "tokens.ssd": 900.0, "tokens.prefill": 100.0, "retention": 72 * HOUR, "ttl.ssd": 72 * HOUR,
    "budget.ssd": 2.0**40, "used.ssd": 2.0**30, "disk_free": 2.0**41, "disk_size": 2.0**42,
}  # fmt: skip


def found(causes: tuple[str, ...] = (), **changed: float) -> list[Finding]:
    figures = WELL | {name.replace("__", "."): value for name, value in changed.items()}
    document: dict[str, Any] = {
        "health": {"status": "degraded" if causes else "ok", "causes": list(causes)},
        "names": list(figures),
        "now": {"values": list(figures.values())},
    }
    return findings(document)


def test_a_service_that_is_well() -> None:
    (only,) = found()
    assert only.severity is Severity.FINE
    assert only.evidence == "90% of 1000 prompt tokens were not run."


@pytest.mark.parametrize(
    ("changed", "title", "severity"),
    [
        ({"calls__plan": 0.0}, "Nobody asks", Severity.LOOK),
        ({"requests": 499.0}, "Requests end late", Severity.LOOK),
        ({"hit_tokens": 0.0, "hits__block": 0.0}, "What is stored is never found", Severity.BAD),
        ({"misses__block__expired": 60.0}, "Blocks are missed: expired", Severity.LOOK),
        ({"misses__block__evicted": 60.0}, "Blocks are missed: evicted", Severity.LOOK),
        ({"misses__block__corrupt": 1.0}, "Blocks are missed: corrupt", Severity.BAD),
        ({"misses__block__tier_down": 60.0}, "Blocks are missed: tier down", Severity.BAD),
        ({"misses__snapshot__expired": 20.0}, "Snapshots are missed: expired", Severity.LOOK),
        ({"misses__snapshot__evicted": 20.0}, "Snapshots are missed: evicted", Severity.LOOK),
        ({"stores__snapshot__stored": 0.0}, "No snapshots are stored", Severity.LOOK),
        ({"retention": 71 * HOUR}, "The disk is too small for the life of blocks", Severity.LOOK),
        ({"retention": 17 * HOUR}, "The disk is too small for the life of blocks", Severity.BAD),
        ({"disk_free": 2.0**39}, "The file system is smaller than the budget", Severity.BAD),
        ({"stores__block__refused": 60.0}, "Stores are refused", Severity.LOOK),
        ({"stores__block__lost": 60.0}, "Stores are lost", Severity.LOOK),
        ({"took__plan__0.05": 900.0}, "Plans are slow", Severity.LOOK),
    ],
)
def test_each_trouble_is_told_alone(changed: dict[str, float], title: str, severity: Severity) -> None:
    (only,) = found((), **changed)
    assert (only.title, only.severity) == (title, severity)
    assert only.evidence
    assert only.advice


@pytest.mark.parametrize(
    "changed",
    [
        {"requests": 500.0},
        {"misses__block__expired": 52.0},
        {"misses__snapshot__evicted": 5.0},
        {"took__plan__0.05": 950.0},
        {"disk_free": 2.0**40},
        {"stores__block__refused": 50.0},
    ],
)
def test_little_of_it_is_no_trouble(changed: dict[str, float]) -> None:
    assert [one.severity for one in found((), **changed)] == [Severity.FINE]


def test_the_worst_comes_first() -> None:
    several = found(("the pool is away",), misses__block__expired=60.0)
    assert [one.severity for one in several] == [Severity.BAD, Severity.LOOK]
    assert several[0].evidence == "the pool is away"


def test_a_service_that_was_just_started() -> None:
    document: dict[str, Any] = {"health": {"status": "ok", "causes": []}, "names": [], "now": {"values": []}}
    assert [one.title for one in findings(document)] == ["Nobody asks"]
