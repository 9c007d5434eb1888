"""From places to a sink: what is in memory is copied, what is not comes through the service, which reads disks."""

from collections.abc import Iterator

from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import checksum_of
from kvshelf_client.http.steps import Steps
from kvshelf_client.local.peer import Opened, Peer, Receiver, RefusedError, header_of
from kvshelf_client.local.residency import PAGE_BYTES, pages_in_memory
from kvshelf_client.local.wire import LENGTH, OFFSET, SHARD, Refusal
from kvshelf_client.words import MissReason, Provenance

_GAP_BYTES = 16 * PAGE_BYTES
"""Records that are no further apart than this are looked at together."""
_BLOCKS_AT_A_STRETCH = 8


def load(lease_id: str, opened: Opened, sink: Receiver, peer: Peer, deadline: Deadline) -> Steps[None]:
    """Bring the blocks of a lease into ``sink``, in order.

    The sink checks a payload once it has been copied, so it does not matter when the service writes its place over:
    what comes then is another record's bytes, or half of them, and no checksum fits. Such a block is asked of the
    service, which looks for itself: what is damaged goes.

    What can no longer be read because the lease is over is a miss, as in a fetch of the other faces.

    Raises:
        OSError, FrameError, RefusedError: see :class:`Peer`.
    """
    for is_near, numbers in _by_nearness(opened):
        if not is_near:
            yield from _ask(lease_id, opened, numbers, sink, peer, deadline)
            continue
        for number in numbers:
            if not _copy(opened, number, sink):
                yield from _ask(lease_id, opened, range(number, number + 1), sink, peer, deadline)
            if number % _BLOCKS_AT_A_STRETCH == _BLOCKS_AT_A_STRETCH - 1:
                yield None
            if deadline.is_over:
                raise TimeoutError("the time is up")


def _copy(opened: Opened, number: int, sink: Receiver) -> bool:
    """Copy a payload; returns whether it is the one it should be."""
    one = opened.ranges[number]
    sink.begin(header_of(one))[:] = opened.segments[number].view(one[OFFSET], one[LENGTH])
    return sink.end()


def _ask(lease_id: str, opened: Opened, numbers: range, sink: Receiver, peer: Peer, deadline: Deadline) -> Steps[None]:
    """Let the service read blocks; they are misses when the lease is over."""
    try:
        yield from peer.read(lease_id, opened, numbers, sink, deadline)
    except RefusedError as error:
        if error.reason is not Refusal.UNKNOWN_LEASE:
            raise
        for number in numbers:
            header = header_of(opened.ranges[number])
            filler = bytes(header.length_bytes)
            sink.begin(
                header._replace(
                    checksum=checksum_of(filler), provenance=Provenance.REPLAYED, generation=0, miss=MissReason.EXPIRED
                )
            )[:] = filler
            sink.end()


def _by_nearness(opened: Opened) -> Iterator[tuple[bool, range]]:
    """The numbers of the blocks, cut where the shard changes, or whether they are in memory."""
    near = in_memory(opened)
    start = 0
    for number in range(1, len(near) + 1):
        is_cut = number == len(near) or (near[number], opened.ranges[number][SHARD]) != (
            near[start],
            opened.ranges[start][SHARD],
        )
        if is_cut:
            yield near[start], range(start, number)
            start = number


def in_memory(opened: Opened) -> list[bool]:
    """Whether all pages of each payload are in memory. Raises OSError, and FrameError for a place beyond its file."""
    found: list[bool] = []
    for numbers in _stretches(opened):
        places = [(one[OFFSET], one[LENGTH]) for one in opened.ranges[numbers.start : numbers.stop]]
        segment, start = opened.segments[numbers.start], places[0][0] // PAGE_BYTES * PAGE_BYTES
        length = sum(places[-1]) - start
        segment.view(start, length)
        pages = pages_in_memory(segment.address, start, length)
        if pages.count(1) == len(pages):
            found += [True] * len(numbers)
            continue
        for offset, size in places:
            first, end = (offset - start) // PAGE_BYTES, (offset + size - start + PAGE_BYTES - 1) // PAGE_BYTES
            found.append(pages.count(1, first, end) == end - first)
    return found


def _stretches(opened: Opened) -> Iterator[range]:
    """The numbers of blocks that lie one soon after the other in a file."""
    start = end = 0
    for number, (one, segment) in enumerate(zip(opened.ranges, opened.segments, strict=True)):
        is_next = segment is opened.segments[start] and 0 <= one[OFFSET] - end <= _GAP_BYTES
        if number > start and not is_next:
            yield range(start, number)
            start = number
        end = one[OFFSET] + one[LENGTH]
    if opened.ranges:
        yield range(start, len(opened.ranges))
