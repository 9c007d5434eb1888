"""Messages over a socket pair: descriptors travel with them, and none is left behind when something goes wrong."""

import array
import os
import socket
from collections.abc import Iterator

import pytest

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import FrameError
from kvshelf_client.local.channel import Channel, close_all
from kvshelf_client.local.wire import HEADER_BYTES, MAX_DESCRIPTORS, Header, Kind, pack_header
from tests.support.local import do, soon


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel that takes descriptors, and the bare other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.settimeout(20)
    channel = Channel(ours, takes_descriptors=True)
    yield channel, theirs
    channel.close()
    theirs.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def send(sock: socket.socket, data: bytes, descriptors: int) -> None:
    """Send bytes with so many descriptors of the null device."""
    null = os.open(os.devnull, os.O_RDONLY)
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * descriptors))])
    os.close(null)


def test_a_message_in_parts_with_descriptors(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    other = Channel(theirs, takes_descriptors=True)
    null = os.open(os.devnull, os.O_RDONLY)
    for count in (0, 1, MAX_DESCRIPTORS):
        do(other.send(Kind.RANGES, [b"ab", memoryview(b""), b"c" * 1000], soon(), [null] * count))
        header, descriptors = do(channel.receive_header(soon()))
        assert header == Header(Kind.RANGES, count, 1002)
        assert len(descriptors) == count
        assert all(os.readlink(f"/proc/self/fd/{one}") == os.devnull for one in descriptors)
        assert not any(os.get_inheritable(one) for one in descriptors)
        close_all(descriptors)
        assert do(channel.read_body(header, 1002, soon())) == b"ab" + b"c" * 1000
    os.close(null)


def test_bodies_larger_than_a_socket_takes_and_of_many_parts(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    parts = [bytes([number % 251]) * (number % 7) for number in range(5000)]
    with pytest.raises(TimeoutError):
        do(channel.send(Kind.FRAMES, [bytes(10 << 20)], Deadline(0.05)))
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    sender, receiver = Channel(ours, takes_descriptors=False), Channel(theirs, takes_descriptors=False)
    do(sender.send_header(Kind.FRAMES, sum(map(len, parts)), soon()))
    for start in range(0, len(parts), 2500):
        do(sender.send_body(parts[start : start + 2500], soon()))
    header, _ = do(receiver.receive_header(soon()))
    assert do(receiver.read_body(header, 1 << 20, soon())) == b"".join(parts)
    sender.close()
    receiver.close()


@pytest.mark.parametrize(
    ("data", "descriptors"),
    [
        (pack_header(Kind.RANGES, 0, 2), 1),
        (pack_header(Kind.RANGES, 0, 0), 1),
        (pack_header(Kind.RANGES, 0, 1), 253),
        (b"x" * HEADER_BYTES, 3),
    ],
)
def test_descriptors_of_no_message_are_closed(
    ends: tuple[Channel, socket.socket], data: bytes, descriptors: int
) -> None:
    channel, theirs = ends
    before = open_descriptors()
    send(theirs, data, descriptors)
    with pytest.raises(FrameError):
        do(channel.receive_header(soon()))
    assert open_descriptors() == before


def test_an_end_inside_a_message(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    before = open_descriptors()
    send(theirs, b"KVSL", 2)
    with pytest.raises(TimeoutError):
        do(channel.receive_header(Deadline(0.05)))
    assert open_descriptors() == before
    theirs.sendall(pack_header(Kind.RANGES, 10) + b"abc")
    theirs.shutdown(socket.SHUT_WR)
    header, _ = do(channel.receive_header(soon()))
    with pytest.raises(ConnectionError):
        do(channel.read_body(header, 10, soon()))


def test_a_body_over_its_bound_is_not_read(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(pack_header(Kind.RANGES, 1 << 60))
    header, _ = do(channel.receive_header(soon()))
    with pytest.raises(FrameError, match="over 100 bytes"):
        do(channel.read_body(header, 100, soon()))


def test_quiet_until_something_comes_or_the_other_end_goes(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    assert channel.is_quiet
    assert not do(channel.wait_for_message(0.01))
    theirs.sendall(b"K")
    assert not channel.is_quiet
    assert do(channel.wait_for_message(0.01))
    theirs.close()
    assert not channel.is_quiet
