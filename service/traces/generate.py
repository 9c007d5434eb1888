"""A seeded generator of coding-agent sessions, in kvshelf's own format. What it makes is made up, and says so.

A session opens with tools and a system prompt that it shares with others, then grows turn by turn: the answer and what
the tools returned are appended, sometimes the last blocks change with it. Now and then sub-agents are sent off, which
share only the tools and work side by side; once, in a stint long enough, history is compacted into a summary. Some
waits are longer than a snapshot lives while the global KV does not mind, and where the trace is long enough a session
is taken up again hours or days later, which no public trace shows. The figures behind the draws are rounded from what
public coding-agent traces show; those of the returns are a guess.

The same seed and settings give the same text on every machine: only whole numbers, and products and sums of floats, are
drawn from the generator's random source.
"""

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from random import Random

from service.traces.base import TraceRequest, runs_of
from service.traces.plain import trace_lines

VERSION = 2
SAMPLE_SEED = 1
SAMPLE_NAME = "sample.jsonl.gz"

_THINK_SECONDS = (0.5, 3.0, 5.0, 9.0, 20.0, 60.0, 180.0)
_OUTPUT_TOKENS = (60, 100, 140, 210, 400, 1200, 3500)
_RETURNED_TOKENS = (20, 60, 150, 400, 1100, 3500, 9000)
_RETURN_SECONDS = (3600.0, 9000.0, 32_000.0, 64_000.0, 90_000.0, 180_000.0, 400_000.0)
_RETURN_CHANCE = 0.55
_API_SECONDS_BASE, _API_TOKENS_PER_SECOND = 1.5, 60
_AGENT_BUILDS = 3
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """What to generate.

    Args:
        sessions: how many, 1 or more. They start one after another, the last at least two thirds of
            ``duration_seconds``, or a day, before the end.
        duration_seconds: no request is later than this.
        block_tokens: tokens a block.
        turns: least and most turns of a stint of work; sub-agents' calls come on top.
    """

    sessions: int = 12
    duration_seconds: float = 7200.0
    block_tokens: int = 64
    turns: tuple[int, int] = (9, 26)

    def __post_init__(self) -> None:
        if self.sessions < 1 or self.block_tokens < 1 or self.duration_seconds <= 0:
            raise ValueError("sessions and block_tokens must be at least 1, and the duration above 0")
        if not 1 <= self.turns[0] <= self.turns[1]:
            raise ValueError("turns are a least and a most number, from 1")

    @property
    def last_start_seconds(self) -> float:
        """No session starts later."""
        return max(self.duration_seconds / 3, self.duration_seconds - _DAY_SECONDS)


@dataclass(slots=True)
class _Ids:
    """Hands out block ids, from 1."""

    next_id: int = 1

    def take(self) -> int:
        self.next_id += 1
        return self.next_id - 1


@dataclass(slots=True)
class _Prompt:
    """A prompt that grows: its length and the ids of its full blocks."""

    block_tokens: int
    ids: _Ids
    tokens: int = 0
    blocks: list[int] = field(default_factory=list)

    def grow(self, tokens: int) -> None:
        """Append tokens; the blocks they fill get new ids."""
        self.tokens += tokens
        while len(self.blocks) < self.tokens // self.block_tokens:
            self.blocks.append(self.ids.take())

    def cut(self, tokens: int) -> "_Prompt":
        """A prompt of the first ``tokens`` of this one."""
        return _Prompt(self.block_tokens, self.ids, tokens, self.blocks[: tokens // self.block_tokens])

    def rewrite_tail(self, blocks: int) -> None:
        """Give the last full blocks new ids, as when the end of the prompt changes but not its length."""
        del self.blocks[max(0, len(self.blocks) - blocks) :]
        self.grow(0)


@dataclass(frozen=True, slots=True)
class _Build:
    """A build of an agent: all its sessions open with the same tools and system prompt."""

    opening: _Prompt
    tool_tokens: int


def generate_requests(rng: Random, settings: GeneratorSettings) -> list[TraceRequest]:
    """The requests of all sessions in order of time; drawn from ``rng`` alone. Block ids are shared by all."""
    builds = list(_builds(rng, settings))
    requests: list[TraceRequest] = []
    for number in range(settings.sessions):
        start = settings.last_start_seconds * (number + rng.random()) / settings.sessions if number else 0.0
        requests += _Session(rng, settings, rng.choice(builds), f"generated_{number + 1:04}", start).generate()
    return sorted(requests, key=lambda request: request.time_seconds)


def _builds(rng: Random, settings: GeneratorSettings) -> Iterator[_Build]:
    ids = _Ids()
    for _ in range(_AGENT_BUILDS):
        opening = _Prompt(settings.block_tokens, ids)
        tool_tokens = rng.randint(7_000, 13_000)
        opening.grow(tool_tokens + rng.randint(1_200, 3_200))
        yield _Build(opening, tool_tokens)


class _Session:
    """One session under way."""

    def __init__(
        self, rng: Random, settings: GeneratorSettings, build: _Build, name: str, start_seconds: float
    ) -> None:
        self._rng = rng
        self._settings = settings
        self._build = build
        self._name = name
        self._now = start_seconds
        self._prompt = build.opening.cut(build.opening.tokens)
        self._was_compacted = False
        self._requests: list[TraceRequest] = []
        self._agents = 0

    def generate(self) -> list[TraceRequest]:
        """Play the session, one stint of work after another, and return its requests."""
        self._prompt.grow(self._rng.randint(500, 12_000))
        self._work()
        while self._now <= self._settings.duration_seconds and self._rng.random() < _RETURN_CHANCE:
            self._now += _draw(self._rng, _RETURN_SECONDS)
            self._work()
        return self._requests

    def _work(self) -> None:
        turns = self._rng.randint(*self._settings.turns)
        compaction = self._rng.randint(turns // 2, turns - 3) if turns >= 10 else None
        breaks = {self._rng.randint(2, max(2, turns)) for _ in range(1 + turns // 12)}
        for turn in range(turns):
            output = self._call(self._prompt, was_compacted=self._was_compacted)
            self._was_compacted = False
            if self._rng.random() < 0.06:
                self._send_agents()
            if turn == compaction:
                self._compact()
            else:
                self._continue(output)
            self._now += self._break() if turn + 1 in breaks else _draw(self._rng, _THINK_SECONDS)

    def _call(self, prompt: _Prompt, agent: str | None = None, *, was_compacted: bool = False) -> int:
        """Send a request; returns the tokens of its answer. Past the trace's end nothing is sent."""
        output = int(_draw(self._rng, _OUTPUT_TOKENS))
        if self._now <= self._settings.duration_seconds:
            self._requests.append(
                TraceRequest(
                    time_seconds=round(self._now, 3),
                    session=self._name,
                    agent=agent,
                    scope=None,
                    input_tokens=prompt.tokens,
                    output_tokens=output,
                    block_tokens=prompt.block_tokens,
                    runs=tuple(runs_of(prompt.blocks)),
                    is_compaction=was_compacted,
                )
            )
        self._now += _API_SECONDS_BASE + output / _API_TOKENS_PER_SECOND
        return output

    def _continue(self, output_tokens: int) -> None:
        """The next prompt: the answer and what came back; at times the end of the old prompt changes, too."""
        if self._rng.random() < 0.06:
            self._prompt.rewrite_tail(self._rng.randint(1, 3))
        self._prompt.grow(output_tokens + int(_draw(self._rng, _RETURNED_TOKENS)))

    def _compact(self) -> None:
        """History becomes a summary behind tools and system prompt."""
        self._prompt = self._prompt.cut(self._build.opening.tokens)
        self._prompt.grow(self._rng.randint(2_000, 6_000))
        self._was_compacted = True

    def _send_agents(self) -> None:
        """Up to three sub-agents set out at once; the session goes on when the last is back."""
        started, back = self._now, self._now
        for _ in range(self._rng.randint(1, 3)):
            self._now = started
            self._run_agent()
            back = max(back, self._now)
        self._now = back

    def _run_agent(self) -> None:
        """A sub-agent with the same tools and a prompt of its own works for a few turns."""
        self._agents += 1
        prompt = self._build.opening.cut(self._build.tool_tokens)
        prompt.grow(self._rng.randint(800, 2_500))
        for _ in range(self._rng.randint(1, 5)):
            output = self._call(prompt, f"agent_{self._agents:03}")
            prompt.grow(output + int(_draw(self._rng, _RETURNED_TOKENS)))
            self._now += _draw(self._rng, _THINK_SECONDS[:4])

    def _break(self) -> float:
        """A wait that a snapshot of five minutes does not survive."""
        return 330.0 + self._rng.random() * 2000.0


def trace_bytes(seed: int, settings: GeneratorSettings) -> bytes:
    """The whole trace as text. Its header says that it is generated, and from what."""
    label = {"by": "kvshelf trace generate", "version": VERSION, "seed": seed, "sessions": settings.sessions}
    rng = Random(seed)  # noqa: S311 - reproducible data, no secret.
    return b"".join(trace_lines(generate_requests(rng, settings), settings.block_tokens, {"generated": label}))


def write_trace(path: Path, content: bytes) -> None:
    """Write a trace, compressed if the name ends in ``.gz``; the same content makes the same file at any time."""
    if path.suffix != ".gz":
        path.write_bytes(content)
        return
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as compressed:
        compressed.write(content)
    path.write_bytes(buffer.getvalue())


def sample_path() -> Path:
    """The sample trace that comes with the package: seed ``SAMPLE_SEED``, all else default."""
    return Path(str(resources.files("service.traces").joinpath(SAMPLE_NAME)))


def _draw(rng: Random, quantiles: Sequence[float]) -> float:
    """A number whose quantiles, evenly spaced, are the given ones; straight lines between them."""
    place = rng.random() * (len(quantiles) - 1)
    index = int(place)
    return quantiles[index] + (quantiles[index + 1] - quantiles[index]) * (place - index)
