"""Images on their way to the medium: each goes out as soon as it has a place, while more are judged and placed."""

from dataclasses import dataclass, field
from itertools import count

from storage.ssd.kernel_io import KernelIO
from storage.ssd.segments import SegmentFiles

PIECE_BYTES = 1 << 20
"""What is written in one go: enough to keep the medium busy, little enough that something ends now and then."""
PIECES_AT_A_TIME = 32


@dataclass(slots=True)
class _Piece:
    """Images that go to one stretch of a segment, one behind the other."""

    segment: int
    offset: int
    images: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0


class Spool:
    """Writes under way. Used by the writer alone; what was begun is written once :meth:`wait` has returned False.

    Args:
        files: the segments.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._writes = KernelIO(PIECES_AT_A_TIME)
        self._numbers = count()
        self._gathered: _Piece | None = None
        self._under_way: dict[int, _Piece] = {}

    def add(self, segment: int, offset: int, image: memoryview) -> None:
        """Have an image written; it must be left alone until that is done. Raises OSError, of others too."""
        piece = self._gathered
        if piece is None or piece.segment != segment or piece.offset + piece.size_bytes != offset:
            self.begin()
            piece = self._gathered = _Piece(segment, offset)
        piece.images.append(image)
        piece.size_bytes += image.nbytes
        if piece.size_bytes >= PIECE_BYTES:
            self.begin()

    def begin(self) -> None:
        """Begin to write what was added so far. Raises OSError."""
        piece, self._gathered = self._gathered, None
        if piece is None:
            return
        number = next(self._numbers)
        request = self._files.request(number, piece.segment, piece.offset, piece.images, is_write=True)
        if self._files.begin(self._writes, [request]):
            self._under_way[number] = piece
        else:
            self._files.write(piece.segment, piece.offset, piece.images)

    def wait(self) -> bool:
        """Wait until one of the writes has ended; False when none is under way. Raises OSError when it failed."""
        failed: list[_Piece] = []
        for number, nbytes in self._writes.wait() if self._under_way else ():
            piece = self._under_way.pop(number)
            if nbytes != piece.size_bytes:
                failed.append(piece)
        for piece in failed:  # Written again, whatever was wrong is told as it is.
            self._files.write(piece.segment, piece.offset, piece.images)
        return bool(self._under_way)

    def abandon(self) -> None:
        """Forget what was not begun, and wait for the rest, whatever becomes of it: its memory is used again."""
        self._gathered = None
        while self._under_way:
            for number, _ in self._writes.wait():
                del self._under_way[number]

    def close(self) -> None:
        """Give the kernel back what it keeps for writes. None is under way."""
        self._writes.close()
