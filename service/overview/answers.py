"""An operator's questions, answered in words, and all that is found wrong, worst first."""

from collections.abc import Callable
from typing import NamedTuple

from service.overview import of_disk, of_pool, of_service, of_tokens
from service.overview.finding import Finding, Level, Topic
from service.overview.situation import Situation


class Answer(NamedTuple):
    """A question and its answer; ``notes`` are what was found wrong about it, and what to do."""

    question: str
    answer: str
    level: Level
    notes: list[Finding]


_QUESTIONS: tuple[tuple[Topic, str, Callable[[Situation], tuple[str, Level]]], ...] = (
    ("tier", "Which tier serves most tokens?", of_tokens.which_tier),
    ("misses", "Why do tokens miss?", of_tokens.why_missed),
    ("pool", "Is the DRAM pool too small?", of_pool.is_it_too_small),
    ("disk", "When will the disk be full?", of_disk.when_full),
)


def findings(facts: Situation) -> list[Finding]:
    """Everything that is found, worst first."""
    found = [one for topic in (of_service, of_tokens, of_pool, of_disk) for one in topic.findings(facts)]
    return sorted(found, key=lambda one: -one.badness)


def answers(facts: Situation, found: list[Finding]) -> list[Answer]:
    """All answers. Each is as bad as the worst that was found about it."""
    return [_answer(topic, question, asked(facts), found) for topic, question, asked in _QUESTIONS]


def _answer(topic: Topic, question: str, answered: tuple[str, Level], found: list[Finding]) -> Answer:
    text, level = answered
    about = [one for one in found if one.topic == topic]
    worst = max(about, key=lambda one: one.badness, default=None)
    if worst is not None and (level == "none" or level == "good" or worst.level == "bad"):
        level = worst.level
    return Answer(question, text, level, about)
