"""The four questions in the situations an operator meets: a real service with small budgets, and what is said of it."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.overview.answers import answers, findings
from service.overview.growth import growth
from service.overview.situation import Situation, situation
from service.overview.space import space_of
from tests.support.node import BLOCK, Node

MIB = 1 << 20
TIER, MISSES, POOL, DISK = range(4)

MakeNode = Callable[..., Node]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    made: list[Node] = []

    def make(**settings: dict[str, Any]) -> Node:
        made.append(Node(tmp_path, **settings))
        return made[-1]

    yield make
    for node in made:
        node.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


def levels(node: Node) -> list[str]:
    return [answer["level"] for answer in node.overview()["answers"]]


def answer(node: Node, question: int) -> str:
    """The answer with its notes."""
    given = node.overview()["answers"][question]
    return " ".join([given["answer"], *(" ".join(map(str, note.values())) for note in given["notes"])])


def titles(node: Node) -> dict[str, str]:
    """Everything that is found, with how bad it is."""
    return {one["title"]: one["level"] for one in node.overview()["findings"]}


def test_idle_and_fresh(make_node: MakeNode) -> None:
    node = make_node()
    assert levels(node) == ["none", "none", "none", "good"]
    assert titles(node) == {"Nobody asks": "none"}
    assert "does not grow" in answer(node, DISK)


def test_ample(make_node: MakeNode) -> None:
    node = make_node()
    for number in range(12):
        node.turn("one", 10 + number)
        node.wait(10)
    assert levels(node) == ["good"] * 4
    assert titles(node) == {}
    assert "The SSD" in answer(node, TIER)
    assert "new text" in answer(node, MISSES)
    assert "never stored" not in answer(node, MISSES)


def test_erased_and_over(make_node: MakeNode) -> None:
    node = make_node()
    for number in range(12):
        node.turn(f"{number}", 50)
        node.wait(10)
    node.parts.blocks.erase([entry.id for entry in node.parts.blocks.scan(b"").entries])
    node.wait(70)
    assert "does not grow" in answer(node, DISK)
    assert "full in" not in answer(node, DISK)


def test_the_pool_evicts(make_node: MakeNode) -> None:
    node = make_node(pool={"budget_bytes": 8 * MIB})
    full = node.register("full", is_full=True)
    for _ in range(2):
        for number in range(12):
            node.turn(f"{number}", 2, namespace=full)
        node.wait(10)
    assert node.overview()["answers"][POOL]["answer"].startswith("Yes")
    assert levels(node)[POOL] == "bad"
    assert "Raise pool.budget_bytes" in answer(node, POOL)
    assert "snapshots that are evicted" in answer(node, MISSES)


def test_a_pool_that_is_smaller_than_a_snapshot(make_node: MakeNode) -> None:
    node = make_node(pool={"budget_bytes": MIB})
    large = node.register("large", is_full=True)
    assert large.shard_snapshot_bytes > MIB
    for _ in range(2):
        for number in range(12):
            node.turn(f"{number}", 2, namespace=large)
    assert titles(node)["The pool holds no snapshot"] == "bad"
    assert "24 snapshots refused" in answer(node, POOL)
    assert not any("ttl_seconds" in one["advice"] for one in node.overview()["findings"])
    assert node.overview()["answers"][POOL]["answer"].startswith("Yes")
    assert "snapshots that are refused" in answer(node, MISSES)
    assert "no session stopped" not in answer(node, MISSES)


def test_the_ssd_evicts(make_node: MakeNode) -> None:
    node = make_node(store={"budget_bytes": 16 * MIB})
    for _ in range(2):
        for number in range(30):
            node.turn(f"{number}", 60)
        node.wait(10)
    assert levels(node)[DISK] == "bad"
    assert titles(node)["The SSD is full: its oldest blocks go"] == "bad"
    assert "full now" in answer(node, DISK)
    assert titles(node)["Blocks are evicted before their time"] in ("look", "bad")


def test_the_ssd_refuses(make_node: MakeNode) -> None:
    node = make_node(store={"budget_bytes": 16 * MIB, "when_full": "refuse"})
    for _ in range(2):
        for number in range(30):
            node.turn(f"{number}", 60)
        node.wait(10)
    assert "store.when_full is refuse" in answer(node, DISK)
    assert "oldest blocks go" not in answer(node, DISK)
    assert titles(node)["The SSD is full and refuses blocks"] == "bad"
    assert "Blocks are refused for want of room" in titles(node)
    assert not any("write floor" in title for title in titles(node))


def test_a_tenants_own_budget_is_named(make_node: MakeNode, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("")
    tokens.chmod(0o600)
    budgets = {"store_budget_bytes": 16 * MIB, "pool_budget_bytes": 2 * MIB}
    node = make_node(access={"tenants": {"acme": budgets}, "token_file": str(tokens)})
    acme = node.register("acme")
    full = node.register("acme", is_full=True)
    for number in range(30):
        node.turn(f"{number}", 60, namespace=acme)
        node.turn(f"{number}", 1, namespace=full)
    node.wait(10)
    assert "The SSD of tenant acme is full: its oldest blocks go" in titles(node)
    assert titles(node)["The pool of tenant acme is too small"] == "bad"
    assert "access.tenants.acme.store_budget_bytes" in answer(node, DISK)
    assert "access.tenants.acme.pool_budget_bytes" in answer(node, POOL)
    assert not any(title.startswith(("The SSD is", "The pool is")) for title in titles(node))


@pytest.mark.parametrize(
    ("free_bytes", "level", "said"),
    [
        (2 * MIB, "look", "the file system is full in"),
        (100 * MIB, "look", "the file system is full in"),
        (100 * 1024 * MIB, "good", "does not|Not at this|budget of"),
    ],
)
def test_a_file_system_smaller_than_the_budget(make_node: MakeNode, free_bytes: int, level: str, said: str) -> None:
    node = make_node()
    for number in range(12):
        node.turn(f"{number}", 20)
        node.wait(10)
    facts = situation(node.parts, node.history.after(0), node.history.now())
    facts = facts._replace(now={**facts.now, "disk_free": float(free_bytes), "disk_size": 300.0 * MIB})
    found = findings(facts)
    given = answers(facts, found)[DISK]
    assert given.level == level
    assert re.search(said, given.answer)
    assert not any("Raise store.budget_bytes" in one.advice for one in found)
    if level != "good":
        assert any("Lower store.budget_bytes" in one.advice for one in found)


def on_small_disk(node: Node, whole_bytes: float, free_bytes: float) -> Situation:
    """The facts, as if the file system were that small."""
    facts = situation(node.parts, node.history.after(0), node.history.now())
    return facts._replace(now={**facts.now, "disk_free": free_bytes, "disk_size": whole_bytes})


def test_the_budget_that_is_advised_is_not_complained_about(make_node: MakeNode) -> None:
    node = make_node()
    node.turn("one", 20)
    facts = on_small_disk(node, 300.0 * MIB, 200.0 * MIB)
    ssd = next(shelf for shelf in facts.shelves if shelf.state.tier == "ssd")
    advised = ssd._replace(state=ssd.state._replace(budget_bytes=int(space_of(facts).budget_that_fits)))
    assert [one.level for one in findings(facts) if one.topic == "disk"] == ["look"]
    assert not [one for one in findings(facts._replace(shelves=[advised])) if one.topic == "disk"]


@pytest.mark.parametrize("budget_mib", [64, 1024])
def test_a_full_file_system_is_not_blamed_on_the_budget(make_node: MakeNode, budget_mib: int) -> None:
    node = make_node(store={"budget_bytes": budget_mib * MIB})
    for number in range(12):
        node.turn(f"{number}", 100)
    node.parts.metrics.missed_tokens.labels("block", "evicted").inc(1e6)
    node.parts.metrics.prompt_tokens.labels("prefill").inc(1e6)
    full = [
        shelf._replace(state=shelf.state._replace(refused_records=40)) for shelf in on_small_disk(node, 0, 0).shelves
    ]
    facts = on_small_disk(node, 300.0 * MIB, 0.0)._replace(shelves=full)
    found = [one for one in findings(facts) if one.topic in ("disk", "misses")]
    assert not any("Raise store.budget_bytes" in one.advice or "to evict" in one.advice for one in found)
    title = "of others' files" if budget_mib == 64 else "before the budget is"
    assert [one.level for one in found if title in one.title] == ["bad"]
    assert answers(facts, found)[DISK].answer.startswith("The file system is full now")
    freed = findings(facts._replace(now={**facts.now, "disk_free": 280.0 * MIB}))
    assert [one.level for one in freed if one.topic == "disk" and "was short of room" in one.title] == ["look"]
    assert not any(one.level == "bad" for one in freed)


def test_the_forecast_is_of_what_others_write_too(make_node: MakeNode) -> None:
    node = make_node(store={"budget_bytes": 64 * MIB})
    for number in range(12):
        node.turn(f"{number}", 20)
        node.wait(10)
    kept = node.history.after(0)
    free = [500.0 * MIB - 30 * MIB * place for place in range(len(kept))]
    shared = [one._replace(sample={**one.sample, "disk_free": left}) for one, left in zip(kept, free, strict=True)]
    assert growth(shared).others == pytest.approx(3 * MIB, rel=0.1)
    facts = on_small_disk(node, 600.0 * MIB, free[-1])._replace(growth=growth(shared))
    found = findings(facts)
    assert "the file system is full in" in answers(facts, found)[DISK].answer
    assert any("will be full in 47 s" in one.title and "Free space" in one.advice for one in found)
    at_once = [
        one._replace(sample={**one.sample, "disk_free": min(free[0], free[0] * (12 - place))})
        for place, one in enumerate(kept)
    ]
    assert growth(at_once).others == 0


def test_a_budget_that_will_hold_blocks_for_long_enough_may_fill(make_node: MakeNode) -> None:
    node = make_node(store={"budget_bytes": 1024 * MIB, "ttl_seconds": 86_400.0})
    for number in range(12):
        node.turn(f"{number}", 12)
        node.wait(10)
    assert not any("full" in title for title in titles(node))
    assert "full in" in answer(node, DISK)


def test_one_of_many_is_no_finding(make_node: MakeNode) -> None:
    node = make_node()
    for number in range(12):
        node.turn("one", 10 + number)
        node.wait(10)
    node.parts.metrics.latency.labels("plan").observe(3.0)
    node.parts.metrics.stores.labels("snapshot", "lost", "tier_down").inc()
    assert titles(node) == {}


def test_a_snapshot_of_which_few_fit(make_node: MakeNode) -> None:
    node = make_node(pool={"budget_bytes": 8 * MIB})
    node.register("full", is_full=True)
    assert titles(node)["The pool holds few snapshots"] == "look"
    assert "has room for 6" in answer(node, POOL)


def test_the_first_block_is_missing(make_node: MakeNode) -> None:
    node = make_node()
    for _ in range(12):
        node.turn("one", 100, skip=[0])
    assert levels(node)[MISSES] == "bad"
    assert titles(node) == {"Gaps cut prompts off": "bad"}
    assert "behind a gap" in answer(node, MISSES)


def test_a_short_life_of_snapshots(make_node: MakeNode) -> None:
    node = make_node(pool={"ttl_seconds": 5.0})
    for _ in range(2):
        for number in range(12):
            node.turn(f"{number}", 100)
        node.wait(10)
    for number in range(12):
        node.turn(f"{number}", 100)
    assert titles(node) == {"Snapshots expire before they are asked for again": "look"}
    assert levels(node)[MISSES] == "look"


def test_a_pool_that_was_away_and_is_back(make_node: MakeNode) -> None:
    node = make_node()
    node.parts.metrics.missed_tokens.labels("snapshot", "tier_down").inc(900)
    node.parts.metrics.prompt_tokens.labels("ssd").inc(1000)
    node.parts.metrics.requests.inc(20)
    assert levels(node)[POOL] != "bad"
    assert titles(node) == {"Snapshots were out of reach for a while, and the tier serves again": "look"}


def test_replays_are_blamed_by_tokens(make_node: MakeNode) -> None:
    node = make_node()
    metrics = node.parts.metrics
    metrics.prompt_tokens.labels("ssd").inc(10_000)
    metrics.requests.inc(20)
    metrics.resumes.labels("bounded_replay", "true").inc(14)
    metrics.missed_tokens.labels("snapshot", "expired").inc(48)
    metrics.missed_tokens.labels("snapshot", "never_stored").inc(52)
    (found,) = node.overview()["findings"]
    assert found["evidence"].startswith("48% of the tokens that were run for want of a snapshot; 70% of requests")


def test_what_is_stored_is_never_found(make_node: MakeNode) -> None:
    node = make_node()
    for number in range(20):
        node.turn(f"a date, then {number}", 20)
    assert titles(node) == {"What is stored is never found": "bad"}


def minutes_to_full(node: Node) -> float:
    """The forecast, in minutes."""
    text = node.overview()["answers"][DISK]["answer"]
    number, unit = text.partition("full in ")[2].split()[:2]
    return float(number) * {"s": 1 / 60, "min": 1.0, "h": 60.0, "days": 1440.0}[unit.strip(",")]


def test_the_forecast_is_steady_under_steady_load_and_ends_with_it(make_node: MakeNode) -> None:
    node = make_node(store={"budget_bytes": 64 * MIB})
    said = []
    for number in range(20):
        node.turn(f"{number}", 20)
        node.wait(10)
        if "full in" in answer(node, DISK):
            said.append(minutes_to_full(node))
    assert len(said) >= 12
    written = 20 * 12 * 1024 / 10
    truth = (64 * MIB - 20 * 20 * 12 * 1024) / written / 60
    assert truth / 1.2 <= said[-1] <= truth * 1.2
    for before, after in zip(said, said[6:], strict=False):
        assert before / 1.3 <= after <= before * 1.3
    node.wait(70)
    assert "does not grow" in answer(node, DISK)


def test_too_little_time_foretells_nothing(make_node: MakeNode) -> None:
    node = make_node()
    node.turn("one", 20)
    node.wait(10)
    assert "too early to say" in answer(node, DISK)


def test_what_expires_before_the_budget_is_spent_never_fills_it(make_node: MakeNode) -> None:
    node = make_node(store={"ttl_seconds": 600.0})
    for number in range(12):
        node.turn(f"{number}", 20)
        node.wait(10)
    assert "Not at this rate" in answer(node, DISK)


def test_segments_made_in_advance_are_not_filled(make_node: MakeNode) -> None:
    node = make_node()
    node.turn("one", 20)
    state = next(shelf for shelf in node.overview()["shelves"] if shelf["tier"] == "ssd")
    assert state["filled_bytes"] < MIB < state["used_bytes"]


def test_without_traffic_the_whole_past_is_looked_at(make_node: MakeNode) -> None:
    node = make_node()
    node.turn("one", 20)
    node.wait(1200)
    assert node.overview()["window_seconds"] == 1200
    assert levels(node)[TIER] == "look"


def test_every_token_is_accounted_for(make_node: MakeNode) -> None:
    node = make_node()
    node.turn("one", 20)
    node.turn("one", 30)
    facts = dict(zip(node.overview()["names"], node.overview()["now"]["values"], strict=True))
    missed = sum(value for name, value in facts.items() if name.startswith("missed."))
    total = sum(value for name, value in facts.items() if name.startswith("tokens."))
    assert total == 52 * BLOCK
    assert missed == total - facts["tokens.ssd"]
