"""What a call receives, waited for by the client's own clock.

gRPC ends a call at its deadline, but there are calls that it forgets to (docs/decisions/0039). So nobody waits inside
gRPC who has to be back in time: a thread does that nobody waits for.
"""

import threading
from queue import Empty, SimpleQueue
from typing import Any

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError

_AHEAD_MESSAGES = 2
"""Read before they are asked for. More would take memory, and a caller that is slow should slow down the service."""


class Incoming:
    """The encoded messages of a call under way, an iterator that raises what ended the call.

    Args:
        stream: the call, an iterator of its messages.
        deadline: when the iterator raises DeadlineError, whatever the call does.
    """

    def __init__(self, stream: Any, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline
        self._is_cancelled = False
        self._came: SimpleQueue[bytes | Exception] = SimpleQueue()
        self._room = threading.Semaphore(_AHEAD_MESSAGES)
        threading.Thread(target=self._read, name="kvshelf-grpc-read", daemon=True).start()

    def __iter__(self) -> "Incoming":
        return self

    def __next__(self) -> bytes:
        try:
            came = self._came.get(timeout=self._deadline.remaining_seconds)
        except Empty:
            raise DeadlineError("no answer in time") from None
        self.check()
        if isinstance(came, Exception):
            self._came.put(came)  # For whoever asks once more.
            raise came
        self._room.release()
        return came

    def check(self) -> None:
        """Whether to go on: raises DeadlineError when the time is up, UnreachableError when the call was cancelled."""
        if self._is_cancelled:
            raise UnreachableError("the call was cancelled")
        if self._deadline.is_over:
            raise DeadlineError("not all came in time")

    def cancel(self) -> None:
        """End the call. Whoever waits for a message goes on at once. Without effect on a call that has ended."""
        self._is_cancelled = True
        self._stream.cancel()
        self._came.put(StopIteration())  # Only wakes up: what is raised is for `check` to say.
        self._room.release()

    def _read(self) -> None:
        try:
            for message in self._stream:
                self._came.put(message)
                self._room.acquire()
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._came.put(error)
        else:
            self._came.put(StopIteration())
