"""A seeded generator of coding-agent sessions, in the session format. What it makes is made up, and says so.

A session opens with tools and a system prompt, then grows turn by turn: the answer and what the tools returned are
appended, sometimes the last blocks change with it. Now and then a sub-agent is sent off, which shares only the tools;
once, in a session long enough, history is compacted into a summary; some waits are longer than a snapshot lives while
the global KV does not mind. The figures behind the draws are rounded from what public coding-agent traces show.

The same seed and settings give the same text on every machine: only whole numbers, and products and sums of floats, are
drawn from the generator's random source.
"""

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from random import Random

VERSION = 1
SAMPLE_SEED = 1
SAMPLE_NAME = "sample.jsonl.gz"

_THINK_SECONDS = (0.5, 3.0, 5.0, 9.0, 20.0, 60.0, 180.0)
_OUTPUT_TOKENS = (60, 100, 140, 210, 400, 1200, 3500)
_RETURNED_TOKENS = (20, 60, 150, 400, 1100, 3500, 9000)
_API_SECONDS_BASE, _API_TOKENS_PER_SECOND = 1.5, 60


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """What to generate.

    Args:
        sessions: how many, 1 or more. They start one after another within the first third of ``duration_seconds``.
        duration_seconds: no request is later than this.
        block_tokens: tokens a block.
        turns: least and most turns of a session; sub-agents' calls come on top.
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


def generate_sessions(rng: Random, settings: GeneratorSettings) -> Iterator[dict[str, object]]:
    """Sessions, each as the object of its line; drawn from ``rng`` alone."""
    for number in range(settings.sessions):
        start = settings.duration_seconds / 3 * (number + rng.random()) / settings.sessions if number else 0.0
        yield _Session(rng, settings, f"generated_{number + 1:04}", start).generate()


class _Session:
    """One session under way."""

    def __init__(self, rng: Random, settings: GeneratorSettings, name: str, start_seconds: float) -> None:
        self._rng = rng
        self._settings = settings
        self._name = name
        self._now = start_seconds
        self._tool_tokens = rng.randint(7_000, 13_000)
        self._system_tokens = rng.randint(1_200, 3_200)
        self._prompt = _Prompt(settings.block_tokens, _Ids())
        self._prompt.grow(self._tool_tokens + self._system_tokens)
        self._requests: list[dict[str, object]] = []
        self._agents = 0

    def generate(self) -> dict[str, object]:
        """Play the session and return its line."""
        turns = self._rng.randint(*self._settings.turns)
        compaction = self._rng.randint(turns // 2, turns - 3) if turns >= 10 else None
        breaks = {self._rng.randint(2, max(2, turns)) for _ in range(1 + turns // 12)}
        self._prompt.grow(self._rng.randint(500, 12_000))
        think = 0.0
        for turn in range(turns):
            output = self._call(self._prompt, think)
            if self._rng.random() < 0.08:
                self._send_agent()
            if turn == compaction:
                self._compact()
            else:
                self._continue(output)
            think = self._break() if turn + 1 in breaks else _draw(self._rng, _THINK_SECONDS)
        return {
            "id": self._name,
            "models": ["generated"],
            "block_size": self._settings.block_tokens,
            "tool_tokens": self._tool_tokens,
            "system_tokens": self._system_tokens,
            "requests": self._requests,
        }

    def _call(self, prompt: _Prompt, think_seconds: float, agent: str | None = None) -> int:
        """Send a request after a wait; returns the tokens of its answer. Past the trace's end nothing is sent."""
        self._now += think_seconds
        output = int(_draw(self._rng, _OUTPUT_TOKENS))
        api_seconds = _API_SECONDS_BASE + output / _API_TOKENS_PER_SECOND
        if self._now <= self._settings.duration_seconds:
            request: dict[str, object] = {
                "t": round(self._now, 3),
                "in": prompt.tokens,
                "out": output,
                "runs": _runs_of(prompt.blocks),
                "think": round(think_seconds, 3),
                "api": round(api_seconds, 2),
            }
            self._requests.append(request if agent is None else {**request, "agent": agent})
        self._now += api_seconds
        return output

    def _continue(self, output_tokens: int) -> None:
        """The next prompt: the answer and what came back; at times the end of the old prompt changes, too."""
        if self._rng.random() < 0.06:
            self._prompt.rewrite_tail(self._rng.randint(1, 3))
        self._prompt.grow(output_tokens + int(_draw(self._rng, _RETURNED_TOKENS)))

    def _compact(self) -> None:
        """History becomes a summary behind tools and system prompt."""
        self._prompt = self._prompt.cut(self._tool_tokens + self._system_tokens)
        self._prompt.grow(self._rng.randint(2_000, 6_000))

    def _send_agent(self) -> None:
        """A sub-agent with the same tools and a prompt of its own works for a few turns."""
        self._agents += 1
        prompt = self._prompt.cut(self._tool_tokens)
        prompt.grow(self._rng.randint(800, 2_500))
        for call in range(self._rng.randint(2, 6)):
            think = _draw(self._rng, _THINK_SECONDS[:4]) if call else 0.0
            output = self._call(prompt, think, f"agent_{self._agents:03}")
            prompt.grow(output + int(_draw(self._rng, _RETURNED_TOKENS)))

    def _break(self) -> float:
        """A wait that a snapshot of five minutes does not survive."""
        return 330.0 + self._rng.random() * 2000.0


def trace_bytes(seed: int, settings: GeneratorSettings) -> bytes:
    """The whole trace as text, one session a line. Every line says that it is generated, and from what."""
    label = {"by": "kvshelf trace generate", "version": VERSION, "seed": seed}
    rng = Random(seed)  # noqa: S311 - reproducible data, no secret.
    lines = (
        json.dumps({**session, "generated": label}, separators=(",", ":")) + "\n"
        for session in generate_sessions(rng, settings)
    )
    return "".join(lines).encode("ascii")


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


def _runs_of(ids: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for block_id in ids:
        if runs and block_id == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([block_id, 1])
    return runs
