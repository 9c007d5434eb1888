"""Who waits for a call is back in time, though gRPC should never say a word more of it."""

import threading
import time
from collections.abc import Iterator

import pytest

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.grpc.incoming import Incoming


class Lost:
    """A call of so many messages that never ends: no status comes, and to be cancelled is of no use."""

    def __init__(self, messages: int) -> None:
        self.read = 0
        self._messages = messages
        self.never = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        for number in range(self._messages):
            self.read += 1
            yield bytes([number])
        self.never.wait()

    def cancel(self) -> None:
        """Without effect."""


@pytest.fixture
def lost() -> Iterator[Lost]:
    call = Lost(2)
    yield call
    call.never.set()


def test_a_call_that_is_lost_is_over_at_its_deadline(lost: Lost) -> None:
    deadline = Deadline(0.1)
    incoming = Incoming(lost, deadline)
    assert [next(incoming), next(incoming)] == [b"\0", b"\1"]
    with pytest.raises(DeadlineError):
        next(incoming)
    assert deadline.is_over


def test_a_call_that_is_lost_and_cancelled_is_over_at_once(lost: Lost) -> None:
    deadline = Deadline(30)
    incoming = Incoming(lost, deadline)
    threading.Timer(0.05, incoming.cancel).start()
    with pytest.raises(UnreachableError, match="cancelled"):
        list(incoming)
    assert deadline.remaining_seconds > 20


def test_no_more_is_read_ahead_than_a_few_messages() -> None:
    call = Lost(100)
    incoming = Incoming(call, Deadline(30))
    time.sleep(0.05)
    assert call.read <= 3
    next(incoming)
    time.sleep(0.05)
    assert call.read <= 4
    incoming.cancel()
    call.never.set()


def test_what_has_come_is_of_no_use_once_the_time_is_up(lost: Lost) -> None:
    incoming = Incoming(lost, Deadline(0.05))
    time.sleep(0.1)
    with pytest.raises(DeadlineError):
        next(incoming)
