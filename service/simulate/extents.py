"""What is stored, by stretches of places that share everything: where they are, how exact, and when last used."""

from bisect import bisect_right
from collections.abc import Iterator

from service.traces.prefixes import FAMILY_BITS, Span


class Segment:
    """A segment of the disk: how many records were written to it, how many are live, and in which extents."""

    __slots__ = ("extents", "live", "written")

    def __init__(self) -> None:
        self.written = 0
        self.live = 0
        self.extents: set[Extent] = set()


class Extent:
    """Records on the places ``[start, end)``, all alike.

    ``used_by`` numbers the request that last used them, and ``used_at`` is its time in seconds; ``is_used`` says that
    they were used since they were put into their segment.
    """

    __slots__ = ("end", "is_exact", "is_used", "segment", "start", "used_at", "used_by")

    def __init__(self, start: int, end: int, segment: Segment, *, is_exact: bool, used_by: int, used_at: float) -> None:
        self.start, self.end, self.segment = start, end, segment
        self.is_exact, self.is_used = is_exact, False
        self.used_by, self.used_at = used_by, used_at

    @property
    def length(self) -> int:
        """How many records."""
        return self.end - self.start

    def is_like(self, other: "Extent") -> bool:
        """Whether nothing but the places tells the two apart."""
        return (
            self.segment is other.segment
            and self.used_by == other.used_by
            and self.is_used == other.is_used
            and self.is_exact == other.is_exact
        )


class ExtentMap:
    """All extents, by place and by the request that last used them. Keeps their segments' accounts."""

    def __init__(self) -> None:
        self._families: dict[int, list[Extent]] = {}
        self._by_use: dict[int, set[Extent]] = {}
        """In the order of the requests: a request that is over gets no more."""
        self.records = 0

    def __iter__(self) -> Iterator[Extent]:
        """All extents."""
        return (extent for family in self._families.values() for extent in family)

    def over(self, span: Span) -> list[Extent]:
        """The extents that have a place of the span, in order."""
        family = self._families.get(span.first >> FAMILY_BITS)
        if family is None:
            return []
        at = self._index(family, span.first)
        found: list[Extent] = []
        while at < len(family) and family[at].start < span.end:
            found.append(family[at])
            at += 1
        return found

    def inside(self, span: Span) -> list[Extent]:
        """The extents over the span, those that reach beyond it cut at its ends."""
        found = self.over(span)
        if found and found[0].start < span.first:
            found[0] = self.split(found[0], span.first)
        if found and found[-1].end > span.end:
            self.split(found[-1], span.end)
        return found

    def add(self, extent: Extent) -> None:
        """Take in an extent on places that have none. It is on its segment's account from here on."""
        family = self._families.setdefault(extent.start >> FAMILY_BITS, [])
        family.insert(self._index(family, extent.start), extent)
        self._by_use.setdefault(extent.used_by, set()).add(extent)
        extent.segment.extents.add(extent)
        extent.segment.live += extent.length
        self.records += extent.length

    def remove(self, extent: Extent) -> None:
        """Let go of an extent."""
        family = self._families[extent.start >> FAMILY_BITS]
        del family[self._index(family, extent.start)]
        if not family:
            del self._families[extent.start >> FAMILY_BITS]
        self._leave_use(extent)
        extent.segment.extents.discard(extent)
        extent.segment.live -= extent.length
        self.records -= extent.length

    def split(self, extent: Extent, at: int) -> Extent:
        """Cut an extent in two, ``at`` being the first place of the second, which is returned."""
        upper = Extent(
            at,
            extent.end,
            extent.segment,
            is_exact=extent.is_exact,
            used_by=extent.used_by,
            used_at=extent.used_at,
        )
        upper.is_used, extent.end = extent.is_used, at
        family = self._families[at >> FAMILY_BITS]
        family.insert(self._index(family, extent.start) + 1, upper)
        self._by_use[upper.used_by].add(upper)
        upper.segment.extents.add(upper)
        return upper

    def use(self, extent: Extent, used_by: int, used_at: float) -> None:
        """A request uses all records of an extent."""
        self._leave_use(extent)
        extent.is_used, extent.used_by, extent.used_at = True, used_by, used_at
        self._by_use.setdefault(used_by, set()).add(extent)

    def move(self, extent: Extent, segment: Segment) -> None:
        """Put all records of an extent into another segment."""
        extent.segment.extents.discard(extent)
        extent.segment.live -= extent.length
        extent.segment, extent.is_used = segment, False
        segment.extents.add(extent)
        segment.live += extent.length

    def join(self, span: Span) -> None:
        """Make one of neighbours that are alike, within the span and at its ends."""
        family = self._families.get(span.first >> FAMILY_BITS, [])
        at = max(self._index(family, span.first) - 1, 0)
        while at + 1 < len(family) and family[at].start < span.end:
            lower, upper = family[at], family[at + 1]
            if lower.end != upper.start or not lower.is_like(upper):
                at += 1
                continue
            self.remove(upper)
            lower.end = upper.end
            lower.segment.live += upper.length
            self.records += upper.length

    def longest_unused(self) -> Extent | None:
        """One of the extents that have been unused for longest."""
        return next((next(iter(users)) for users in self._by_use.values()), None)

    def _leave_use(self, extent: Extent) -> None:
        users = self._by_use[extent.used_by]
        users.discard(extent)
        if not users:
            del self._by_use[extent.used_by]

    def _index(self, family: list[Extent], place: int) -> int:
        """Where the extent is that has the place, or else the next one."""
        at = bisect_right(family, place, key=_start)
        return at - 1 if at and family[at - 1].end > place else at


def _start(extent: Extent) -> int:
    return extent.start
