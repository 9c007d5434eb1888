"""Payloads in memory: the last used stay, within the budget, and what was forgotten stays away."""

from storage.ssd.format import PAGE_BYTES
from storage.ssd.memory import OVERHEAD_BYTES, PayloadMemory

ONE_BYTES = PAGE_BYTES + OVERHEAD_BYTES


def payload(fill: int) -> memoryview:
    return memoryview(bytes([fill]) * 100)


def filled(room: int, *numbers: int) -> PayloadMemory:
    memory = PayloadMemory(room * ONE_BYTES)
    for number in numbers:
        memory.put([(number, payload(number))])
    return memory


def test_what_was_put_is_there() -> None:
    memory = filled(2, 1, 2)
    assert memory.get([2, 3, 1]) == [payload(2), None, payload(1)]
    assert 1 in memory
    assert 3 not in memory
    assert memory.used_bytes == 2 * ONE_BYTES, "paddings and overhead count"


def test_the_least_recently_used_goes_first() -> None:
    memory = filled(2, 1, 2)
    memory.get([1])
    memory.put([(3, payload(3))])
    assert memory.get([1, 2, 3]) == [payload(1), None, payload(3)]
    assert memory.used_bytes == 2 * ONE_BYTES


def test_putting_the_same_again_changes_nothing() -> None:
    memory = filled(2, 1, 1, 2)
    assert memory.get([1, 2]) == [payload(1), payload(2)]


def test_what_is_over_the_budget_is_not_kept() -> None:
    assert filled(0, 1).get([1]) == [None]
    memory = filled(1, 1)
    memory.put([(2, memoryview(bytes(2 * PAGE_BYTES)))])
    assert memory.get([1, 2]) == [payload(1), None]


def test_what_was_forgotten_is_taken_from_no_late_reader() -> None:
    memory = filled(2, 1, 2)
    memory.forget([1, 7])
    assert memory.used_bytes == ONE_BYTES
    memory.put([(1, payload(1))])
    memory.put([(7, payload(7))])
    assert memory.get([1, 7, 2]) == [None, None, payload(2)]
