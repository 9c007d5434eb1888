"""Images on their way: all are there once it is finished, in pieces, and whatever goes wrong is told or waited for."""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.ssd.format import PAGE_BYTES
from storage.ssd.images import Images
from storage.ssd.kernel_io import Request
from storage.ssd.segments import SegmentFiles
from storage.ssd.spool import PIECE_BYTES, PIECES_AT_A_TIME, Spool

SEGMENT_BYTES = 8 << 20
IMAGES = Images()


class WatchedFiles(SegmentFiles):
    """Segment files that note how they are written to, and whose kernel may move less than it was given."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.begun: list[Request] = []
        self.written: list[tuple[int, int, int]] = []
        """Segment, offset and images of the writes that were waited for."""
        self.is_short = False

    def request(
        self, number: int, segment: int, offset: int, images: Sequence[memoryview], *, is_write: bool = False
    ) -> Request:
        """See :meth:`SegmentFiles.request`."""
        asked = images[:-1] if self.is_short else images
        self.begun.append(super().request(number, segment, offset, asked, is_write=is_write))
        return self.begun[-1]

    def write(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """See :meth:`SegmentFiles.write`."""
        self.written.append((number, offset, len(images)))
        super().write(number, offset, images)


@pytest.fixture
def files(tmp_path: Path) -> WatchedFiles:
    made = WatchedFiles(tmp_path / "segments")
    made.create(1, SEGMENT_BYTES)
    made.create(2, SEGMENT_BYTES)
    return made


@pytest.fixture
def spool(files: WatchedFiles) -> Iterator[Spool]:
    made = Spool(files)
    yield made
    made.close()


def finish(spool: Spool) -> None:
    """All that was added is written then."""
    spool.begin()
    while spool.wait():
        pass


def image(pages: int, content: int) -> memoryview:
    made = IMAGES.take(pages * PAGE_BYTES - 128)
    made[:] = bytes([content]) * len(made)
    return made


def test_everything_is_where_it_belongs_and_neighbours_go_out_together(spool: Spool, files: WatchedFiles) -> None:
    places = [(1, page * 3 * PAGE_BYTES) for page in range(200)] + [(2, 0), (2, 7 * PAGE_BYTES), (1, 700 * PAGE_BYTES)]
    for number, (segment, offset) in enumerate(places):
        spool.add(segment, offset, image(3, number))
    finish(spool)
    for number, (segment, offset) in enumerate(places):
        with files.path(segment).open("rb") as file:
            file.seek(offset)
            assert file.read(3 * PAGE_BYTES) == bytes([number]) * (3 * PAGE_BYTES)
    assert [len(one.images) for one in files.begun] == [86, 86, 28, 1, 1, 1]
    assert files.written == []
    assert files.unsynced == {1, 2}
    assert not spool.wait(), "nothing is left"


def test_more_pieces_than_the_kernel_takes_at_a_time_are_written_too(spool: Spool, files: WatchedFiles) -> None:
    count = 3 * PIECES_AT_A_TIME
    for number in range(count):
        spool.add(1, 2 * number * PAGE_BYTES, image(1, number))
    finish(spool)
    content = files.path(1).read_bytes()
    assert all(content[2 * number * PAGE_BYTES] == number for number in range(count))


def test_what_the_kernel_wrote_in_part_is_written_again(spool: Spool, files: WatchedFiles) -> None:
    files.is_short = True
    for number in range(3):
        spool.add(1, number * PAGE_BYTES, image(1, 1 + number))
    finish(spool)
    assert files.written == [(1, 0, 3)]
    assert files.path(1).read_bytes()[: 3 * PAGE_BYTES : PAGE_BYTES] == bytes([1, 2, 3])


def test_a_write_that_cannot_be_done_raises_what_is_wrong(spool: Spool, files: WatchedFiles) -> None:
    files.path(2).unlink()
    spool.add(2, 0, image(1, 1))
    with pytest.raises(FileNotFoundError) as raised:
        finish(spool)
    assert raised.value.errno == errno.ENOENT
    spool.abandon()
    finish(spool)


def test_what_was_abandoned_is_waited_for_and_the_rest_never_begun(spool: Spool, files: WatchedFiles) -> None:
    for number in range(PIECE_BYTES // PAGE_BYTES + 5):
        spool.add(1, number * PAGE_BYTES, image(1, 7))
    spool.abandon()
    assert [len(one.images) for one in files.begun] == [PIECE_BYTES // PAGE_BYTES]
    assert files.path(1).read_bytes()[PIECE_BYTES : PIECE_BYTES + PAGE_BYTES] == bytes(PAGE_BYTES)
    assert not spool.wait()
    spool.add(2, 0, image(1, 9))
    finish(spool)
    assert files.path(2).read_bytes()[0] == 9


def test_a_kernel_that_takes_none_has_them_written_at_once(
    monkeypatch: pytest.MonkeyPatch, files: WatchedFiles
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    spool = Spool(files)
    spool.add(1, 0, image(2, 5))
    finish(spool)
    assert files.written == [(1, 0, 1)]
    assert files.path(1).read_bytes()[: 2 * PAGE_BYTES] == bytes([5]) * (2 * PAGE_BYTES)
    spool.close()
