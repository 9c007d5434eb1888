"""A progress bar on standard error: drawn over itself on a terminal, a line every few seconds elsewhere."""

from collections.abc import Callable

from service.cli import console
from storage.clock import Clock

_WIDTH = 24
_REDRAW_SECONDS, _LINE_SECONDS = 0.1, 10.0


class Progress:
    """A bar for work whose size is known.

    Args:
        label: what is being done.
        clock: says when it is time to draw again, and how long the rest may take.
        on_terminal: whether a line can be drawn over.
        redraw: draws a line over the one before.
        warn: writes a line.
    """

    def __init__(
        self,
        label: str,
        *,
        clock: Clock,
        on_terminal: bool,
        redraw: Callable[[str], None] = console.redraw,
        warn: Callable[[str], None] = console.warn,
    ) -> None:
        self._label = label
        self._clock = clock
        self._on_terminal = on_terminal
        self._redraw, self._warn = redraw, warn
        self._started = clock.monotonic()
        self._drawn = self._started
        self._is_shown = False

    def update(self, share: float, describe: Callable[[], str]) -> None:
        """Show that ``share`` (0 to 1) is done, unless that was shown a moment ago."""
        now = self._clock.monotonic()
        if now - self._drawn < (_REDRAW_SECONDS if self._on_terminal else _LINE_SECONDS):
            return
        self._drawn = now
        elapsed = now - self._started
        rest = f"about {duration(elapsed / share - elapsed)} left" if share > 0 else "starting"
        line = f"{self._label} {share:4.0%}, {describe()}, {rest}"
        if not self._on_terminal:
            self._warn(line)
            return
        filled = int(share * _WIDTH)
        self._redraw(f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {line}")
        self._is_shown = True

    def clear(self) -> None:
        """Take the bar away."""
        if self._is_shown:
            self._redraw("")
            self._is_shown = False


def duration(seconds: float) -> str:
    """A duration as people write it: ``8 s``, ``3:20``, ``1:02:09``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
