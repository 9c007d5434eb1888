"""Take a call apart by shelf, and put the answers together again in the order of the call."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Group(NamedTuple, Generic[T]):
    """What of a call concerns one shelf, and where in the call each of it stands, in ascending order."""

    shelf: str
    items: Sequence[T]
    positions: Sequence[int]


def grouped(items: Sequence[T], prefix_of: Callable[[T], bytes], shelf_of: Callable[[bytes], str]) -> list[Group[T]]:
    """The items by shelf. Items with the same prefix are on the same shelf; most calls are about one prefix."""
    prefixes = [prefix_of(item) for item in items]
    shelves = {prefix: shelf_of(prefix) for prefix in set(prefixes)}
    if len(set(shelves.values())) == 1:
        return [Group(shelves[prefixes[0]], items, range(len(items)))]
    places: dict[str, list[int]] = {}
    for position, prefix in enumerate(prefixes):
        places.setdefault(shelves[prefix], []).append(position)
    return [Group(shelf, [items[at] for at in positions], positions) for shelf, positions in places.items()]


def merged(answers: Sequence[tuple[Group[T], Sequence[A]]], count: int) -> list[A]:
    """One answer an item, in the order of the call."""
    placed = {at: answer for group, some in answers for at, answer in zip(group.positions, some, strict=True)}
    return [placed[at] for at in range(count)]
