"""A workload in an operator's numbers, and a trace that has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from service.traces.base import Run, Trace, TraceRequest

_DAY_SECONDS = 86_400.0
_REQUESTS, _LEAST_SESSIONS, _MOST_SESSIONS = 6_000, 20, 300
_OWN_IDS = 1 << 32


class Gap(NamedTuple):
    """A wait between a session's requests, and what share of the waits is like it."""

    seconds: float
    share: float


CODING_AGENT_GAPS = (Gap(20, 0.78), Gap(150, 0.11), Gap(450, 0.02), Gap(1800, 0.06), Gap(43_200, 0.03))
"""Rounded from public coding-agent traces, of whose snapshots 78, 89 and 91 % are alive after 1, 5 and 10 minutes; how
the rest is spread over half hours and nights is a guess."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions that are all alike but for their gaps.

    Args:
        sessions_per_day: how many start a day, above 0, at even intervals.
        turns: requests of a session, 1 or more.
        first_tokens: length of its first prompt.
        shared_tokens: the part of that which all sessions share: tools and system prompt.
        turn_tokens: what each further prompt has more: the answer, and what the user or a tool returned.
        answer_tokens: of these, the answer.
        gaps: the waits between requests; shares are weights.
    """

    sessions_per_day: float
    turns: int = 20
    first_tokens: int = 12_000
    shared_tokens: int = 0
    turn_tokens: int = 2_000
    answer_tokens: int = 300
    gaps: Sequence[Gap] = CODING_AGENT_GAPS

    def __post_init__(self) -> None:
        if not self.sessions_per_day > 0 or self.turns < 1 or self.first_tokens < 1 or self.turn_tokens < 0:
            raise ValueError("sessions a day, turns and the tokens of the first prompt must be above 0")
        if not 0 <= self.shared_tokens <= self.first_tokens:
            raise ValueError("shared tokens are a part of the first prompt")
        if not 0 <= self.answer_tokens <= self.turn_tokens:
            raise ValueError("the answer is a part of what a turn adds")
        if any(gap.share < 0 for gap in self.gaps) or not sum(gap.share for gap in self.gaps) > 0:
            raise ValueError("the shares of the gaps must not be negative, and one must be above 0")

    @property
    def last_tokens(self) -> int:
        """Length of a session's last prompt."""
        return self.first_tokens + (self.turns - 1) * self.turn_tokens

    def trace(self, block_tokens: int) -> Trace:
        """Some sessions of the workload; the same each time."""
        sessions = min(_MOST_SESSIONS, max(_LEAST_SESSIONS, _REQUESTS // self.turns))
        rng = Random(1)  # noqa: S311 - reproducible data, no secret.
        requests = [one for number in range(sessions) for one in self._session(rng, number, block_tokens)]
        requests.sort(key=lambda request: request.time_seconds)
        return Trace("workload", "numbers", block_tokens, tuple(requests), sessions, 0, generated="from numbers")

    def _session(self, rng: Random, number: int, block_tokens: int) -> Iterator[TraceRequest]:
        now = number * _DAY_SECONDS / self.sessions_per_day
        shared = self.shared_tokens // block_tokens
        seconds, weights = zip(*self.gaps, strict=True)
        for turn in range(self.turns):
            tokens = self.first_tokens + turn * self.turn_tokens
            own = tokens // block_tokens - shared
            runs = [Run(0, shared)] if shared else []
            runs += [Run((number + 1) * _OWN_IDS, own)] if own else []
            name = f"session-{number + 1}"
            yield TraceRequest(now, name, None, None, tokens, self.answer_tokens, block_tokens, tuple(runs))
            now += rng.choices(seconds, weights)[0]
