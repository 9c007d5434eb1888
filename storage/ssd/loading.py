"""Reading records from segments: past the page cache, several at a time, each once however many ask for it.

What was read and verified stays in the tier's memory, within its budget. So reading ahead is nothing but reading early,
and what is read ahead of a client that has stopped taking it is let go of like everything else.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import xxhash

from storage.base import Entry, Miss
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, RecordHeader, padded_bytes
from storage.ssd.ids import pack_id
from storage.ssd.images import Images, payload_in
from storage.ssd.memory import PayloadMemory
from storage.ssd.segments import SegmentFiles

READERS = 8
"""Reads under way at a time: what an NVMe disk needs to be busy."""
MOST_AHEAD = 128
"""Records being read at a time, from which on nothing is read ahead."""
STRETCH_BYTES = 1 << 20
"""Most bytes of neighbouring records that are read in one go."""
TASK_BYTES = 384 << 10
"""About what one thread reads before others may ask for something else."""

Spot = tuple[int, int]
"""Segment and page of a record; segment 0 is none."""

Read = memoryview | OSError | None
"""A verified payload; why it could not be read; or None when what is there is not that record, whole and unharmed."""


class Place(NamedTuple):
    """A record that is to be read, and where it stands."""

    entry: Entry
    spot: Spot


def verified(entry: Entry, image: memoryview) -> memoryview | None:
    """The payload in an image that was read; None when it is not that record's, whole and unharmed."""
    expected = RecordHeader(
        pack_id(entry.id),
        entry.generation,
        entry.provenance,
        entry.length_bytes,
        entry.created_at,
        entry.checksum,
    )
    if image.nbytes < HEADER_BYTES + entry.length_bytes or image[:HEADER_BYTES].tobytes() != expected.pack():
        return None
    payload = payload_in(image, entry.length_bytes)
    return payload if xxhash.xxh3_64_intdigest(payload) == entry.checksum else None


class Loader:
    """Reads records for whoever asks. Thread-safe. The segments of what is loaded are pinned by the caller.

    Args:
        files: the segments.
        images: memory to read into.
        memory: where verified payloads are kept.
        on_read: told the payload bytes of each record that came from the medium.
    """

    def __init__(
        self, files: SegmentFiles, images: Images, memory: PayloadMemory, on_read: Callable[[int], None]
    ) -> None:
        self._files, self._images, self._memory, self._on_read = files, images, memory, on_read
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="kvshelf-reader")
        self._lock = Lock()
        self._under_way: dict[_Mark, tuple[Future[list[Read]], int]] = {}

    def read(self, entry: Entry, spot: Spot) -> memoryview | None:
        """One record's payload, past the memory and not kept there; None when what is there is not that record.

        Raises:
            OSError: the segment cannot be read.
        """
        image = self._images.take(entry.length_bytes)
        self._files.read(spot[0], spot[1] * PAGE_BYTES, [image])
        return verified(entry, image)

    def attempt(self, entry: Entry, spot: Spot) -> Read:
        """As :meth:`read`, and told as a read."""
        try:
            payload = self.read(entry, spot)
        except OSError as error:
            return error
        if payload is not None:
            self._on_read(len(payload))
        return payload

    def load(self, places: Sequence[Place]) -> list[Read]:
        """What the records at these places hold, in order. They are read even where they are in memory."""
        if len(places) == 1 and _mark(places[0]) not in self._under_way:
            return [self._read_one(places[0])]
        # Who began a read may have had no pins any more: what failed is read again, for oneself.
        return [
            payload if isinstance(payload := future.result()[position], memoryview) else self._read_one(place)
            for place, (future, position) in zip(places, self._begin(places), strict=True)
        ]

    def expect(self, places: Sequence[Place]) -> None:
        """Begin to read, unless enough is being read or nothing may be kept. Errors come when it is asked for."""
        if self._memory.budget_bytes and len(self._under_way) < MOST_AHEAD:
            self._begin(places)

    def bring_into_cache(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> None:
        """Have records brought into the page cache, in a thread. Nobody is told when that fails."""
        self._threads.submit(self._bring, entries, spots)

    def _bring(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> None:
        pairs = zip(entries, spots, strict=True)
        for stretch in _stretches([Place(entry, spot) for entry, spot in pairs if isinstance(entry, Entry)]):
            segment, page = stretch[0].spot
            size = sum(padded_bytes(place.entry.length_bytes) for place in stretch)
            self._files.bring_into_cache(segment, page * PAGE_BYTES, size)

    def close(self) -> None:
        """Wait for what is under way and let the threads go."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _begin(self, places: Sequence[Place]) -> list[tuple[Future[list[Read]], int]]:
        """Have the threads read records, unless they do already; where each one's result will be."""
        with self._lock:
            fresh = {mark: place for place in places if (mark := _mark(place)) not in self._under_way}
            for task in _tasks([*fresh.values()]):
                future = self._threads.submit(self._read_all, task)
                marks = [_mark(place) for stretch in task for place in stretch]
                self._under_way |= {mark: (future, index) for index, mark in enumerate(marks)}
            return [self._under_way[_mark(place)] for place in places]

    def _read_all(self, task: Sequence[Sequence[Place]]) -> list[Read]:
        try:
            return [read for stretch in task for read in self._read_stretch(stretch)]
        finally:
            with self._lock:
                for stretch in task:
                    for place in stretch:
                        del self._under_way[_mark(place)]

    def _read_stretch(self, stretch: Sequence[Place]) -> list[Read]:
        """Read neighbours in one go. Where that fails, each is read by itself by whoever needs it."""
        images = [self._images.take(place.entry.length_bytes) for place in stretch]
        segment, page = stretch[0].spot
        try:
            self._files.read(segment, page * PAGE_BYTES, images)
            return [self._kept(place.entry, image) for place, image in zip(stretch, images, strict=True)]
        except OSError as error:
            return [error] * len(stretch)

    def _read_one(self, place: Place) -> Read:
        payload = self.attempt(*place)
        if isinstance(payload, memoryview):
            self._memory.put(place.entry.generation, payload)
        return payload

    def _kept(self, entry: Entry, image: memoryview) -> memoryview | None:
        payload = verified(entry, image)
        if payload is not None:
            self._memory.put(entry.generation, payload)
            self._on_read(len(payload))
        return payload


_Mark = tuple[int, Spot]


def _mark(place: Place) -> _Mark:
    """A record at a place: one that is moved keeps its generation."""
    return place.entry.generation, place.spot


def _tasks(places: Sequence[Place]) -> list[list[list[Place]]]:
    """Stretches, a few small ones a task: handing work to a thread costs as much as a small read."""
    tasks: list[list[list[Place]]] = []
    size = TASK_BYTES
    for stretch in _stretches(places):
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(stretch)
        size += sum(place.entry.length_bytes for place in stretch)
    return tasks


def _stretches(places: Sequence[Place]) -> list[list[Place]]:
    """Cut places, in order, into runs of neighbours of at most ``STRETCH_BYTES``, one record at least."""
    runs: list[list[Place]] = []
    size = 0
    end: Spot = (0, 0)
    for place in places:
        length = padded_bytes(place.entry.length_bytes)
        if place.spot != end or size + length > STRETCH_BYTES:
            runs.append([])
            size = 0
        runs[-1].append(place)
        size += length
        end = (place.spot[0], place.spot[1] + length // PAGE_BYTES)
    return runs
