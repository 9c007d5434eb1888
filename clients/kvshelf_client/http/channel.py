"""One connection: bytes in and out, in steps, into and out of the caller's buffers."""

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
        short_reads_drain: a read of less than there was room for means that nothing more is there.
    """

    def __init__(self, sock: Socket, where: str, read_seconds: float, *, short_reads_drain: bool = True) -> None:
        self.is_clean = False
        self._sock = sock
        self._where = where
        self._read_seconds = read_seconds
        self._deadline = Deadline(0)
        self._ahead_buffer = bytearray(MAX_HEAD_BYTES)
        self._ahead = memoryview(self._ahead_buffer)
        self._start = self._end = 0
        self._short_reads_drain = short_reads_drain
        self._is_drained = False
        self._stretch_bytes = 0
        self._readable = Wait(sock.fileno(), to_write=False, seconds=0)
        self._writable = Wait(sock.fileno(), to_write=True, seconds=0)

    def begin(self, deadline: Deadline) -> None:
        """Start a call. It has until ``deadline``."""
        self._deadline = deadline
        self.is_clean, self._is_drained = False, self._short_reads_drain

    def is_quiet(self) -> bool:
        """Whether the connection is still open. Between two calls nothing may arrive, the end of the stream neither."""
        self._readable.seconds = 0
        return self._start == self._end and not self._readable.in_thread()

    def close(self) -> None:
        """Close it."""
        self._sock.close()

    def send_now(self, data: bytes) -> bytes:
        """Send what is taken of it without waiting; returns the rest, which :meth:`send` sends.

        A question without a body always is, and so costs no step.
        """
        try:
            return data[self._sock.sendmsg([memoryview(data)]) :]
        except OSError:  # What it means is found by the steps.
            return data

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
                    if not (yield self._within_time(self._writable)):
                        raise self._late() from None
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    return
                except OSError as error:
                    raise self._broken(error) from error
                batch = _behind(batch, count)
                self._stretch_bytes += count
                if self._stretch_bytes >= _STRETCH_BYTES:
                    yield self._turn()

    def take_ahead(self, view: memoryview) -> int:
        """Take what has come already; returns how many bytes. For the rest there is :meth:`fill`."""
        if self._start == self._end:
            return 0
        count = min(len(view), self._end - self._start)
        view[:count] = self._ahead[self._start : self._start + count]
        self._start += count
        return count

    def fill(self, view: memoryview) -> Steps[None]:
        """Receive exactly as many bytes as ``view`` has, into it."""
        filled = self.take_ahead(view)
        while filled < len(view):
            rest = view[filled:]
            count = self._receive([rest, self._ahead[:_AHEAD_BYTES]], len(rest) + _AHEAD_BYTES)
            if count is None:
                if not (yield self._within_time(self._readable)):
                    raise self._late()
                continue
            if not count:
                raise UnreachableError(f"{self._where} hung up {len(view) - filled} bytes too early")
            filled += min(count, len(rest))
            self._start, self._end = 0, max(0, count - len(rest))
            self._stretch_bytes += count
            if self._stretch_bytes >= _STRETCH_BYTES:
                yield self._turn()

    def read_head(self) -> Steps[Head]:
        """Receive the head of a response.

        Raises:
            AnswerError: it is none, or longer than ``MAX_HEAD_BYTES``.
        """
        self._start = self._end = 0
        while (found := self._ahead_buffer.find(END, 0, self._end)) < 0:
            room_bytes = MAX_HEAD_BYTES - self._end
            if not room_bytes:
                raise AnswerError(f"the head of an answer is over {MAX_HEAD_BYTES} bytes")
            count = self._receive([self._ahead[self._end :]], room_bytes)
            if count is None:
                if not (yield self._within_time(self._readable)):
                    raise self._late()
                continue
            if not count:
                raise UnreachableError(f"{self._where} hung up before it answered")
            self._end += count
        self._start = found + len(END)
        return parse_head(self._ahead[:found].tobytes())

    def _receive(self, room: list[memoryview], room_bytes: int) -> int | None:
        """Receive what is there; returns how many bytes, 0 at the end, None when it must be waited for."""
        if self._is_drained:  # To be told so would cost as much as to receive.
            self._is_drained = False
            return None
        try:
            count: int = self._sock.recvmsg_into(room)[0]
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._broken(error) from error
        self._is_drained = self._short_reads_drain and count < room_bytes
        return count

    def _within_time(self, wait: Wait) -> Wait:
        self._stretch_bytes = 0
        wait.seconds = min(self._deadline.remaining_seconds, self._read_seconds)
        if wait.seconds <= 0:
            raise self._late()
        return wait

    def _turn(self) -> Wait | None:
        """The step in which others have a turn. Where nothing has to be waited for, the deadline is looked at here."""
        self._stretch_bytes = 0
        if self._deadline.is_over:
            raise self._late()
        return None

    def _late(self) -> DeadlineError:
        return DeadlineError(f"{self._where} did not answer in time")

    def _broken(self, error: OSError) -> UnreachableError:
        return UnreachableError(f"talking to {self._where} failed: {error.strerror or type(error).__name__}")


def _behind(batch: list[memoryview], count: int) -> list[memoryview]:
    """What is left of a batch behind its first ``count`` bytes."""
    for position, part in enumerate(batch):
        if count < len(part):
            return [part[count:], *batch[position + 1 :]]
        count -= len(part)
    return []
