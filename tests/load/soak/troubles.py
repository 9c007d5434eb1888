"""What may go wrong between a client and its service, each for as long as it is entered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.load.soak.lane import Lane


def cut(lane: Lane) -> Iterator[None]:
    """In the midst of an answer, again and again."""
    lane.proxy.cut_after_bytes = lane.chance.randrange(1, 200_000)
    yield
    lane.proxy.cut_after_bytes = None


def silent(lane: Lane) -> Iterator[None]:
    """Half open: what is sent goes nowhere."""
    lane.proxy.is_silent = True
    yield
    lane.proxy.is_silent = False
    lane.proxy.cut_all()


def slow(lane: Lane) -> Iterator[None]:
    """A byte a second."""
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 1.0, 1
    yield
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.0, 0


def slowish(lane: Lane) -> Iterator[None]:
    """So slow that a fetch does not end in time."""
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.01, lane.chance.randrange(1000, 10_000)
    yield
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.0, 0


def refused(lane: Lane) -> Iterator[None]:
    """Nobody listens."""
    lane.proxy.stop_listening()
    yield
    lane.proxy.listen_again()


def reset(lane: Lane) -> Iterator[None]:
    """Connections end as they begin."""
    lane.proxy.is_resetting = True
    lane.proxy.cut_all()
    yield
    lane.proxy.is_resetting = False


@contextmanager
def _spoiling(lane: Lane, spoil: Callable[[bytes], bytes]) -> Iterator[None]:
    whole, lane.proxy.spoil = lane.proxy.spoil, spoil
    yield
    lane.proxy.spoil = whole


def garbage(lane: Lane) -> Iterator[None]:
    """Answers are noise."""
    with _spoiling(lane, lambda piece: lane.chance.randbytes(len(piece))):
        yield


def another_version(lane: Lane) -> Iterator[None]:
    """Frames are of another version of the wire format."""
    with _spoiling(lane, lambda piece: piece.replace(b"KVSF\x01", b"KVSF\x02")):
        yield


def flipped(lane: Lane) -> Iterator[None]:
    """One bit of each piece of an answer is another."""

    def flip(piece: bytes) -> bytes:
        spoiled = bytearray(piece)
        spoiled[lane.chance.randrange(len(piece))] ^= 1 << lane.chance.randrange(8)
        return bytes(spoiled)

    with _spoiling(lane, flip):
        yield


TROUBLES: tuple[Callable[[Lane], Iterator[None]], ...] = (
    cut, silent, slow, slowish, refused, reset, garbage, another_version, flipped,
)  # fmt: skip
