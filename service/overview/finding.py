"""What is found wrong with a service: the same on its page and in ``kvshelf doctor``."""

from typing import Literal, NamedTuple

Level = Literal["good", "look", "bad", "none"]
"""Whether it needs somebody: not; when there is time; now. ``none``: there is nothing to judge."""

LEVELS: tuple[Level, ...] = ("none", "good", "look", "bad")
"""From the best to the worst."""

Topic = Literal["tier", "misses", "pool", "disk", "health", "service"]
"""The question it is an answer to; ``health`` and ``service`` are to none."""


OVER = "Nothing is left to do: what is missing is stored again when it is run again."
"""The advice for what was wrong and is no more."""


class Finding(NamedTuple):
    """Something to know: what, the figures that say so, and what to do about it. Each a sentence of its own."""

    level: Level
    topic: Topic
    title: str
    evidence: str
    advice: str

    @property
    def badness(self) -> int:
        """How bad it is; larger is worse."""
        return LEVELS.index(self.level)
