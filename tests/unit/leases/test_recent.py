"""The bounded, ageing memory."""

import threading

import pytest

from service.leases.recent import Recent
from storage.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recent(clock: ManualClock) -> Recent[str, int]:
    return Recent(clock, ttl_seconds=10, limit=3)


def test_what_was_put_is_there_until_its_time_is_over(recent: Recent[str, int], clock: ManualClock) -> None:
    assert recent.get("a") is None
    recent.put("a", 1)
    clock.advance(9.9)
    assert recent.get("a") == 1
    clock.advance(0.1)
    assert recent.get("a") is None, "a look renews nothing"


def test_the_oldest_goes_beyond_the_limit(recent: Recent[str, int]) -> None:
    for number, key in enumerate("abcd"):
        recent.put(key, number)
    assert [recent.get(key) for key in "abcd"] == [None, 1, 2, 3]
    assert len(recent) == 3


def test_putting_again_replaces_renews_and_makes_it_the_youngest(recent: Recent[str, int], clock: ManualClock) -> None:
    recent.put("a", 1)
    recent.put("b", 2)
    clock.advance(6)
    recent.put("a", 3)
    recent.put("c", 4)
    recent.put("d", 5)
    assert [recent.get(key) for key in "abcd"] == [3, None, 4, 5]
    clock.advance(6)
    assert recent.get("a") == 3


def test_what_is_renewed_lives_and_is_the_youngest(recent: Recent[str, int], clock: ManualClock) -> None:
    recent.put("a", 1)
    recent.put("b", 2)
    clock.advance(6)
    recent.renew("a")
    recent.renew("never put")
    clock.advance(4)
    assert [recent.get(key) for key in ("a", "b", "never put")] == [1, None, None]
    recent.renew("b")
    assert recent.get("b") is None, "it was over"
    for key in "cd":
        recent.put(key, 3)
    assert [recent.get(key) for key in "acd"] == [1, 3, 3]
    clock.advance(6)
    assert recent.get("a") is None


def test_what_is_over_makes_room(recent: Recent[str, int], clock: ManualClock) -> None:
    recent.put("a", 1)
    recent.put("b", 2)
    clock.advance(10)
    recent.put("c", 3)
    assert len(recent) == 1


def test_only_the_first_put_if_absent_counts(recent: Recent[str, int], clock: ManualClock) -> None:
    assert recent.put_if_absent("a", 1)
    assert not recent.put_if_absent("a", 2)
    assert recent.get("a") == 1
    clock.advance(9.9)
    assert not recent.put_if_absent("a", 3), "a refused put renews nothing"
    clock.advance(0.1)
    assert recent.put_if_absent("a", 4)
    assert recent.get("a") == 4


def test_put_if_absent_keeps_to_the_limit(recent: Recent[str, int]) -> None:
    for number, key in enumerate("abcd"):
        assert recent.put_if_absent(key, number)
    assert len(recent) == 3
    assert recent.put_if_absent("a", 9), "it was forgotten"


def test_of_many_threads_one_puts_each_key(clock: ManualClock) -> None:
    recent: Recent[int, int] = Recent(clock, ttl_seconds=10, limit=10_000)
    winners: list[int] = []

    def work(thread: int) -> None:
        for key in range(500):
            if recent.put_if_absent(key, thread):
                winners.append(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(winners) == list(range(500))


def test_whoever_has_the_most_loses_their_oldest(clock: ManualClock) -> None:
    recent = Recent[tuple[str, int], int](clock, ttl_seconds=60, limit=10, owner_of=lambda key: key[0])
    for number in range(3):
        recent.put(("quiet", number), number)
    for number in range(1000):
        recent.put(("loud", number), number)
        recent.put_if_absent(("loud", number), number)
    assert len(recent) == 10
    assert [recent.get(("quiet", number)) for number in range(3)] == [0, 1, 2]
    assert [recent.get(("loud", number)) for number in (992, 993, 999)] == [None, 993, 999]
    for number in range(3, 20):
        recent.put(("quiet", number), number)
    held = [owner for owner in ("quiet", "loud") for number in range(1000) if recent.get((owner, number)) is not None]
    assert (held.count("quiet"), held.count("loud"), len(recent)) == (5, 5, 10)
