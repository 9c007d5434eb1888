"""One connection: bytes in and out, in steps, into and out of the caller's buffers."""

import select
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import AnswerError, DeadlineError, UnreachableError
from kvshelf_client.http.head import END, MAX_HEAD_BYTES, Head, parse_head
from kvshelf_client.http.steps import Steps, Wait

if TYPE_CHECKING:
    from typing_extensions import Buffer

_AHEAD_BYTES = 4 << 10
"""What is read beyond what was asked for, so that a small thing behind a large one costs no system call of its own."""
_STRETCH_BYTES = 1 << 20
_PARTS = 64


class Socket(Protocol):
    """What a channel needs of a socket that never blocks; :mod:`.tls` has another one."""

    def recvmsg_into(self, buffers: list[memoryview], /) -> Any:
        """Receive; the first of what it returns is the count of bytes, 0 at the end. Raises BlockingIOError."""

    def sendmsg(self, buffers: list[memoryview], /) -> int:
        """Send some of it; returns how many bytes. Raises BlockingIOError."""

    def fileno(self) -> int:
        """The descriptor."""

    def close(self) -> None:
        """Close it."""


class Channel:
    """A connection. One call at a time uses it; ``is_clean`` says that none is, and the next one may.

    Args:
        sock: connected; it is this object's from here on.
        where: what the service is called in errors.
        read_seconds: the longest silence.
    """

    def __init__(self, sock: Socket, where: str, read_seconds: float) -> None:
        self.is_clean = False
        self._sock = sock
        self._where = where
        self._read_seconds = read_seconds
        self._deadline = Deadline(0)
        self._ahead = memoryview(bytearray(MAX_HEAD_BYTES))
        self._start = self._end = 0
        self._stretch_bytes = 0

    def begin(self, deadline: Deadline) -> None:
        """Start a call. It has until ``deadline``."""
        self._deadline = deadline
        self.is_clean = False

    def is_quiet(self) -> bool:
        """Whether the connection is still open. Between two calls nothing may arrive, the end of the stream neither."""
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        return self._start == self._end and not poll.poll(0)

    def close(self) -> None:
        """Close it."""
        self._sock.close()

    def send(self, parts: "Iterable[Buffer]") -> Steps[None]:
        """Send all parts, each from where it is.

        When the service hangs up in the middle, its answer may still be there to read: that is no error yet.
        """
        rest = iter(parts)
        while batch := [memoryview(part).cast("B") for part in islice(rest, _PARTS)]:
            while batch:
                try:
                    count = self._sock.sendmsg(batch)
                except BlockingIOError:
                    yield from self._wait(to_write=True)
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    return
                except OSError as error:
                    raise self._broken(error) from error
                batch = _behind(batch, count)
                yield from self._rest_after(count)

    def fill(self, view: memoryview) -> Steps[None]:
        """Receive exactly as many bytes as ``view`` has, into it."""
        filled = self._take_ahead(view)
        while filled < len(view):
            rest = view[filled:]
            try:
                count: int = self._sock.recvmsg_into([rest, self._ahead[:_AHEAD_BYTES]])[0]
            except BlockingIOError:
                yield from self._wait(to_write=False)
                continue
            except OSError as error:
                raise self._broken(error) from error
            if not count:
                raise UnreachableError(f"{self._where} hung up {len(view) - filled} bytes too early")
            filled += min(count, len(rest))
            self._start, self._end = 0, max(0, count - len(rest))
            yield from self._rest_after(count)

    def read_head(self) -> Steps[Head]:
        """Receive the head of a response.

        Raises:
            AnswerError: it is none, or longer than ``MAX_HEAD_BYTES``.
        """
        self._start = self._end = 0
        while (found := self._ahead[: self._end].tobytes().find(END)) < 0:
            if self._end == MAX_HEAD_BYTES:
                raise AnswerError(f"the head of an answer is over {MAX_HEAD_BYTES} bytes")
            try:
                count: int = self._sock.recvmsg_into([self._ahead[self._end :]])[0]
            except BlockingIOError:
                yield from self._wait(to_write=False)
                continue
            except OSError as error:
                raise self._broken(error) from error
            if not count:
                raise UnreachableError(f"{self._where} hung up before it answered")
            self._end += count
        self._start = found + len(END)
        return parse_head(self._ahead[:found].tobytes())

    def _take_ahead(self, view: memoryview) -> int:
        count = min(len(view), self._end - self._start)
        if count:
            view[:count] = self._ahead[self._start : self._start + count]
            self._start += count
        return count

    def _wait(self, *, to_write: bool) -> Steps[None]:
        seconds = min(self._deadline.remaining_seconds, self._read_seconds)
        self._stretch_bytes = 0
        if seconds <= 0 or not (yield Wait(self._sock.fileno(), to_write, seconds)):
            raise DeadlineError(f"{self._where} did not answer in time")

    def _rest_after(self, count: int) -> Steps[None]:
        """Where the other side never makes this one wait, the deadline is to be looked at all the same."""
        self._stretch_bytes += count
        if self._stretch_bytes >= _STRETCH_BYTES:
            self._stretch_bytes = 0
            if self._deadline.is_over:
                raise DeadlineError(f"{self._where} did not answer in time")
            yield None

    def _broken(self, error: OSError) -> UnreachableError:
        return UnreachableError(f"talking to {self._where} failed: {error.strerror or type(error).__name__}")


def _behind(batch: list[memoryview], count: int) -> list[memoryview]:
    """What is left of a batch behind its first ``count`` bytes."""
    for position, part in enumerate(batch):
        if count < len(part):
            return [part[count:], *batch[position + 1 :]]
        count -= len(part)
    return []
