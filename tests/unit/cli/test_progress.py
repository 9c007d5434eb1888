"""The progress bar: drawn over itself on a terminal, seldom elsewhere, never for nothing."""

import pytest

from service.cli.progress import Progress, duration
from storage.clock import ManualClock


class _Screen:
    """What was drawn and what was written."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.written: list[str] = []


def _progress(clock: ManualClock, *, on_terminal: bool) -> tuple[Progress, _Screen]:
    screen = _Screen()
    bar = Progress("work", clock=clock, on_terminal=on_terminal, redraw=screen.drawn.append, warn=screen.written.append)
    return bar, screen


def test_a_terminal_sees_a_bar_ten_times_a_second() -> None:
    clock = ManualClock()
    bar, screen = _progress(clock, on_terminal=True)
    for step in range(100):
        clock.advance(0.0625)
        bar.update((step + 1) / 100, lambda: "going")
    assert len(screen.drawn) == 50
    assert screen.drawn[24] == "[" + "#" * 12 + "." * 12 + "] work  50%, going, about 3 s left"
    assert screen.written == []
    bar.clear()
    bar.clear()
    assert screen.drawn[50:] == [""]


def test_a_file_sees_a_line_every_ten_seconds() -> None:
    clock = ManualClock()
    bar, screen = _progress(clock, on_terminal=False)
    for _ in range(25):
        clock.advance(1)
        bar.update(0.25, lambda: "going")
    bar.clear()
    assert screen.written == ["work  25%, going, about 30 s left", "work  25%, going, about 1:00 left"]
    assert screen.drawn == []


def test_what_takes_a_moment_shows_nothing() -> None:
    bar, screen = _progress(ManualClock(), on_terminal=True)
    bar.update(1.0, lambda: "done")
    bar.clear()
    assert screen.drawn == []


def test_nothing_done_yet() -> None:
    clock = ManualClock()
    bar, screen = _progress(clock, on_terminal=True)
    clock.advance(1)
    bar.update(0.0, lambda: "-")
    assert screen.drawn == ["[" + "." * 24 + "] work   0%, -, starting"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (200, "3:20"), (3599.4, "59:59"), (3729, "1:02:09")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
