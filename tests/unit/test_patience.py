"""How long a conversation with Redis may wait, to the millisecond, on a clock that stands still."""

import contextvars
import socket

import pytest

from storage.clock import ManualClock
from storage.dram.bounded import SOUND_BYTES_PER_SECOND, BoundedSocket, Waiting
from storage.patience import Patience, begin_work, patience_in_force, waiting_with


def test_a_round_ends_when_its_time_is_over() -> None:
    clock = ManualClock()
    waiting = Waiting(clock, 0.2)
    waiting.begin()
    assert waiting.left() == pytest.approx(0.2)
    clock.advance(0.199)
    assert waiting.left() == pytest.approx(0.001)
    clock.advance(0.001)
    with pytest.raises(TimeoutError):
        waiting.left()
    waiting.begin()
    assert waiting.left() == pytest.approx(0.2)


def test_rounds_take_from_the_patience_of_the_work() -> None:
    clock, patience = ManualClock(), Patience(0.25)
    waiting = Waiting(clock, 0.2)
    with waiting_with(patience):
        waiting.begin()
        clock.advance(0.15)
        waiting.end()
        assert patience.left_seconds == pytest.approx(0.1)
        waiting.begin()
        assert waiting.left() == pytest.approx(0.1)
        clock.advance(0.2)
        waiting.end()
        with pytest.raises(TimeoutError):
            waiting.begin()
    waiting.begin()
    assert waiting.left() == pytest.approx(0.2)


def test_bytes_at_a_sound_rate_take_no_patience() -> None:
    clock, patience = ManualClock(), Patience(0.25)
    waiting = Waiting(clock, 0.2)
    with waiting_with(patience):
        waiting.begin()
        for _ in range(100):
            clock.advance(0.01)
            waiting.moved(int(0.01 * SOUND_BYTES_PER_SECOND))
        assert waiting.left() == pytest.approx(0.2)
        waiting.end()
    assert patience.left_seconds == pytest.approx(0.25)


def test_a_trickle_is_no_answer() -> None:
    clock = ManualClock()
    waiting = Waiting(clock, 0.2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bounded = BoundedSocket(ours, waiting)
        waiting.begin()
        for _ in range(4):
            theirs.sendall(b"x")
            assert bounded.recv_into(bytearray(10)) == 1
            clock.advance(0.05001)
        theirs.sendall(b"x")
        with pytest.raises(TimeoutError):
            bounded.recv_into(bytearray(10))
        with pytest.raises(TimeoutError):
            bounded.sendall(b"x")
        assert bounded.fileno() == ours.fileno()


def test_patience_is_the_tasks_own() -> None:
    def work() -> None:
        assert patience_in_force() is None
        one, other = Patience(1), Patience(2)
        begin_work(one)
        with waiting_with(other):
            assert patience_in_force() is other
        assert patience_in_force() is one

    contextvars.Context().run(work)
    assert patience_in_force() is None
