"""Messages over a UNIX socket, with the descriptors that travel along. Used by both ends."""

import array
import os
import socket
from collections.abc import Sequence

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import FrameError
from kvshelf_client.http.steps import Steps, Wait
from kvshelf_client.local.wire import HEADER_BYTES, MAX_DESCRIPTORS, Header, Kind, pack_header, unpack_header

Parts = Sequence[bytes | bytearray | memoryview]
_Rights = tuple[int, int, "array.array[int]"]

_INT_BYTES = array.array("i").itemsize
_PARTS_PER_CALL = 1024
_ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * _INT_BYTES)


class Channel:
    """One end of a conversation, in steps. One user at a time.

    Every method raises OSError when the connection is in trouble (TimeoutError when the deadline is over), and
    FrameError when what comes is no message; after either the channel is of no more use.

    Args:
        sock: a connected UNIX stream socket; the channel's own from now on.
        takes_descriptors: whether descriptors that come are taken; the kernel closes them otherwise.
    """

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._takes_descriptors = takes_descriptors

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def hang_up(self) -> None:
        """End the conversation from another thread: whoever waits for a message finds that none will come."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come: so it should be between a request's answer and the next request."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def wait_for_message(self, seconds: float) -> Steps[bool]:
        """Wait until a message begins; False when the other end hung up, or the time is up."""
        is_ready = yield Wait(self._sock.fileno(), to_write=False, seconds=seconds)
        return is_ready and bool(self._sock.recv(1, socket.MSG_PEEK))

    def send(self, kind: Kind, body: Parts, deadline: Deadline, descriptors: Sequence[int] = ()) -> Steps[None]:
        """Send a message whose body is in parts."""
        header = pack_header(kind, sum(map(len, body)), len(descriptors))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        yield from self._send_all((header, *body), deadline, rights)

    def send_header(self, kind: Kind, length_bytes: int, deadline: Deadline) -> Steps[None]:
        """Send the header of a message; its body comes with :meth:`send_body`, part after part."""
        yield from self._send_all((pack_header(kind, length_bytes),), deadline)

    def send_body(self, body: Parts, deadline: Deadline) -> Steps[None]:
        """Send a part of a body."""
        yield from self._send_all(body, deadline)

    def _send_all(self, parts: Parts, deadline: Deadline, rights: Sequence[_Rights] = ()) -> Steps[None]:
        left = [memoryview(part) for part in parts]
        while left:
            try:
                done = self._sock.sendmsg(left[:_PARTS_PER_CALL], rights)
            except BlockingIOError:
                yield from self._ready(deadline, to_write=True)
                continue
            rights = ()
            index = 0
            while index < len(left) and done >= len(left[index]):
                done -= len(left[index])
                index += 1
            left = left[index:]
            if done:
                left[0] = left[0][done:]

    def receive_header(self, deadline: Deadline) -> Steps[tuple[Header, list[int]]]:
        """The header of the next message, and its descriptors, for the caller to close. The body is to be read next."""
        head, descriptors = bytearray(HEADER_BYTES), list[int]()
        try:
            filled = yield from self._receive_first(head, descriptors, deadline)
            yield from self.read_into(memoryview(head)[filled:], deadline)
            header = unpack_header(head)
            if self._takes_descriptors and header.descriptors != len(descriptors):
                raise FrameError(f"{header.descriptors} descriptors were announced, {len(descriptors)} came")
        except BaseException:  # whatever it was, nobody else closes what came
            close_all(descriptors)
            raise
        return header, descriptors

    def read_body(self, header: Header, limit_bytes: int, deadline: Deadline) -> Steps[bytearray]:
        """The body behind a header; FrameError when it is longer than ``limit_bytes``."""
        if header.length_bytes > limit_bytes:
            raise FrameError(f"a body of {header.length_bytes} bytes is over {limit_bytes} bytes")
        body = bytearray(header.length_bytes)
        yield from self.read_into(memoryview(body), deadline)
        return body

    def read_into(self, buffer: memoryview, deadline: Deadline) -> Steps[None]:
        """Fill a buffer from the body."""
        while buffer:
            try:
                count = self._sock.recv_into(buffer)
            except BlockingIOError:
                yield from self._ready(deadline)
                continue
            if not count:
                raise ConnectionError("the other end hung up inside a message")
            buffer = buffer[count:]

    def _receive_first(self, head: bytearray, descriptors: list[int], deadline: Deadline) -> Steps[int]:
        """The first bytes of a header, which the descriptors come with; returns how many bytes those are."""
        while True:
            try:
                count, ancillary, flags, _ = self._sock.recvmsg_into(
                    [head], _ANCILLARY_BYTES if self._takes_descriptors else 0, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                yield from self._ready(deadline)
                continue
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors += array.array("i", data[: len(data) - len(data) % _INT_BYTES])
            if self._takes_descriptors and flags & socket.MSG_CTRUNC:
                raise FrameError("more descriptors came than a message may have")
            if not count:
                raise ConnectionError("the other end hung up")
            return count

    def _ready(self, deadline: Deadline, *, to_write: bool = False) -> Steps[None]:
        wait = Wait(self._sock.fileno(), to_write=to_write, seconds=deadline.remaining_seconds)
        if deadline.is_over or not (yield wait):
            raise TimeoutError("the time is up")


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)
