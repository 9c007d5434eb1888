"""Reading records from segments: past the page cache, several at a time, each once however many ask for it.

What was read and verified stays in the tier's memory, within its budget. So reading ahead is nothing but reading early,
and what is read ahead of a client that has stopped taking it is let go of like everything else.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count, islice
from threading import Condition, Lock, Thread
from typing import NamedTuple

import xxhash

from storage.base import Entry, Miss
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, RecordHeader, padded_bytes
from storage.ssd.ids import pack_id
from storage.ssd.images import Images, payload_in
from storage.ssd.kernel_io import KernelIO, Request
from storage.ssd.memory import PayloadMemory
from storage.ssd.segments import SegmentFiles

READS_AT_A_TIME = 16
"""What an NVMe disk needs to be busy, also while what has come is looked at."""
READERS = 8
"""Threads for reads that the kernel does not take."""
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


_Mark = tuple[int, Spot]


class _Task:
    """Some stretches that are read for whoever asks: what has come of each, and how many are ``left``."""

    def __init__(self, stretches: Sequence[Sequence[Place]]) -> None:
        self.marks = [_mark(place) for stretch in stretches for place in stretch]
        self.reads: list[list[Read]] = [[] for _ in stretches]
        self.left = len(stretches)
        self.future: Future[list[Read]] = Future()
        self.problem: Exception | None = None


class _Part:
    """Neighbours, which stretch of their task they are, the images they are read into, and what the kernel is asked."""

    def __init__(self, task: _Task, at: int, places: Sequence[Place]) -> None:
        self.task, self.at, self.places = task, at, places
        self.images: list[memoryview] = []
        self.request: Request | None = None

    @property
    def size_bytes(self) -> int:
        """What is read of them in all."""
        return sum(image.nbytes for image in self.images)


class Loader:
    """Reads records for whoever asks. Thread-safe. The segments of what is loaded are pinned by the caller.

    The kernel does the reads, and one thread takes in what has come. What the kernel does not take, or not whole, is
    read by threads.

    Args:
        files: the segments.
        images: memory to read into.
        memory: where verified payloads are kept.
        on_read: told how many payload bytes came from the medium.
    """

    def __init__(
        self, files: SegmentFiles, images: Images, memory: PayloadMemory, on_read: Callable[[int], None]
    ) -> None:
        self._files, self._images, self._memory, self._on_read = files, images, memory, on_read
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="kvshelf-reader")
        self._reads = KernelIO(READS_AT_A_TIME)
        self._numbers = count()
        self._queue = deque[_Part]()
        self._in_kernel: dict[int, _Part] = {}
        self._lock = Lock()
        self._has_begun = Condition(self._lock)
        self._is_closed = False
        self._under_way: dict[_Mark, tuple[Future[list[Read]], int]] = {}
        self._taker = Thread(target=self._take_in, name="kvshelf-reads", daemon=True)
        self._taker.start()

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
        with self._lock:
            self._is_closed = True
            self._queue.clear()
            self._has_begun.notify()
        self._taker.join()
        self._reads.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _begin(self, places: Sequence[Place]) -> list[tuple[Future[list[Read]], int]]:
        """Have records read, unless they are already; where each one's result will be."""
        with self._lock:
            fresh = {mark: place for place in places if (mark := _mark(place)) not in self._under_way}
            for stretches in _tasks([*fresh.values()]):
                task = _Task(stretches)
                self._under_way |= {mark: (task.future, index) for index, mark in enumerate(task.marks)}
                self._queue += [_Part(task, at, stretch) for at, stretch in enumerate(stretches)]
            self._begin_some()
            return [self._under_way[_mark(place)] for place in places]

    def _begin_some(self) -> None:
        """Keep the medium busy. Called with the lock held."""
        while room := min(READS_AT_A_TIME - len(self._in_kernel), len(self._queue)):
            requests: list[Request] = []
            for _ in range(room):
                part = self._queue.popleft()
                try:
                    requests.append(self._request_of(part))
                except OSError as error:
                    self._threads.submit(self._settle, part, error)
                else:
                    self._in_kernel[requests[-1].number] = part
            begun = self._files.begin(self._reads, requests)
            for one in requests[begun:]:
                self._threads.submit(self._read, self._in_kernel.pop(one.number))
        self._has_begun.notify()

    def _make_ready(self) -> None:
        """Make ready what is begun next, while the medium is busy: it stands still when that must be done first."""
        with self._lock, suppress(OSError):  # It is told when its turn comes.
            for part in islice(self._queue, READS_AT_A_TIME):
                self._request_of(part)

    def _request_of(self, part: _Part) -> Request:
        """What the kernel is asked for a part. Raises OSError: there is no memory for it, or no such file."""
        if part.request is None:
            part.images = [self._images.take(place.entry.length_bytes) for place in part.places]
            segment, page = part.places[0].spot
            part.request = self._files.request(next(self._numbers), segment, page * PAGE_BYTES, part.images)
        return part.request

    def _take_in(self) -> None:
        """What the thread does that waits for the kernel."""
        while self._has_some_in_kernel():
            self._take_in_ended()

    def _has_some_in_kernel(self) -> bool:
        """Wait until the kernel has reads; False when it never will again."""
        with self._lock:
            self._has_begun.wait_for(lambda: self._in_kernel or self._is_closed)
            return bool(self._in_kernel)

    def _take_in_ended(self) -> None:
        """Wait for reads to end, begin others, and settle those. What came is kept by nobody here."""
        ended = self._reads.wait()
        with self._lock:
            came = [(self._in_kernel.pop(number), nbytes) for number, nbytes in ended]
            self._begin_some()
        for part, nbytes in came:
            if nbytes == part.size_bytes:
                self._settle(part)
            else:
                self._threads.submit(self._read, part)
        self._make_ready()

    def _read(self, part: _Part) -> None:
        """Read neighbours in one go. Where that fails, each is read by itself by whoever needs it."""
        segment, page = part.places[0].spot
        try:
            self._files.read(segment, page * PAGE_BYTES, part.images)
        except OSError as error:
            self._settle(part, error)
        else:
            self._settle(part)

    def _settle(self, part: _Part, error: OSError | None = None) -> None:
        """A part was read, or could not be. What is there is verified, and told once all of its task is.

        Whatever goes wrong here is told too: whoever asked would wait for ever.
        """
        task, images = part.task, part.images
        try:
            task.reads[part.at] = [error or verified(place.entry, images[at]) for at, place in enumerate(part.places)]
        except Exception as problem:  # noqa: BLE001
            task.problem = problem
        with self._lock:
            task.left -= 1
            if task.left:
                return
        reads = [read for reads in task.reads for read in reads]
        if task.problem is None:  # Else some are missing, and it is not known which of them these are.
            try:
                self._keep(task.marks, reads)
            except Exception as problem:  # noqa: BLE001
                task.problem = problem
        with self._lock:
            for mark in task.marks:
                del self._under_way[mark]
        if task.problem is not None:
            task.future.set_exception(task.problem)
        else:
            task.future.set_result(reads)

    def _keep(self, marks: Sequence[_Mark], reads: Sequence[Read]) -> None:
        """Tell of what came from the medium, and keep it in memory."""
        sound = [(mark[0], read) for mark, read in zip(marks, reads, strict=True) if isinstance(read, memoryview)]
        if sound:
            self._on_read(sum(len(payload) for _, payload in sound))
        self._memory.put(sound)

    def _read_one(self, place: Place) -> Read:
        payload = self.attempt(*place)
        if isinstance(payload, memoryview):
            self._memory.put([(place.entry.generation, payload)])
        return payload


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
