"""``kvshelf replay`` against ``kvshelf serve`` on a real Redis: the hits that a trie counts, to the token."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from service.traces.generate import GeneratorSettings, trace_bytes, write_trace
from tests.integration.process.conftest import Serve
from tests.support.engine import metric
from tests.support.redis_server import RedisServer
from tests.support.served import Served, kvshelf
from tests.support.trie import Trie

PROMISED = {
    "requests", "prompt_tokens", "hit_tokens", "matched_tokens", "tokens_by_source", "resumes", "replayed_tokens",
}  # fmt: skip
SOURCES = ("hbm", "dram", "ssd", "replay", "prefill")
MOONCAKE_TOKENS = 512


@pytest.fixture
def served(serve: Serve, redis: RedisServer) -> Served:
    return serve("--redis-url", redis.url)


def replay(served: Served, path: Path, *options: str) -> dict[str, Any]:
    """Replay a file; returns the document it ends with."""
    ended = kvshelf("replay", str(path), "--url", served.url, "--json", *options)
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def check(served: Served, document: dict[str, Any], lengths: list[int], hit_tokens: int) -> None:
    """The document against what the trace says, and the service's counters against the document."""
    assert document.keys() >= PROMISED
    assert (document["requests"], document["prompt_tokens"]) == (len(lengths), sum(lengths))
    assert document["hit_tokens"] == hit_tokens
    assert 0 < document["matched_tokens"] <= hit_tokens
    assert sum(document["resumes"].values()) == len(lengths)
    assert (document["misses"], document["bad_lines"], document["complete"]) == ({}, 0, True)
    sources = {source: metric(served.http, f'kvshelf_prompt_tokens_total{{source="{source}"}}') for source in SOURCES}
    assert sources == document["tokens_by_source"]
    assert sum(sources.values()) == sum(lengths)
    assert metric(served.http, "kvshelf_hit_tokens_total") == hit_tokens
    assert metric(served.http, "kvshelf_requests_total") == len(lengths)
    assert metric(served.http, "kvshelf_replayed_tokens_total") == document["replayed_tokens"]
    assert metric(served.http, "kvshelf_leases") == 0
    assert metric(served.http, 'kvshelf_tier_pinned_bytes{tier="ssd"}') == 0


def test_generated_sessions(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl.gz"
    content = trace_bytes(5, GeneratorSettings(sessions=20, turns=(2, 6)))
    write_trace(path, content)
    lengths, hits, trie = [], 0, Trie()
    header, *requests = map(json.loads, content.splitlines())
    for request in requests:
        ids = [first + step for first, count in request["runs"] for step in range(count)]
        hits += trie.insert(ids) * header["block_tokens"]
        lengths.append(request["in"])
    document = replay(served, path)
    check(served, document, lengths, hits)
    assert 1 <= document["resumes"]["cold"] <= 3, "the first session of each build; the others share its opening"
    assert document["resumes"]["snapshot"] > 30
    assert served.stop() == 0


def mooncake_lines(rng: Random, count: int) -> list[dict[str, Any]]:
    """Conversations that share a few system prompts, grow by turns, and are now and then cut short or forked."""
    next_id, lines = 0, []
    conversations: list[list[int]] = [[]]
    for number in range(count):
        ids = list(rng.choice(conversations))
        if rng.random() < 0.3:
            del ids[rng.randint(0, len(ids)) :]
        for _ in range(rng.randint(0, 6)):
            ids.append(next_id)
            next_id += 1
        conversations.append(ids)
        partial = rng.randint(0, MOONCAKE_TOKENS - 1) or MOONCAKE_TOKENS // 2
        lines.append(
            {
                "timestamp": number * 100,
                "input_length": len(ids) * MOONCAKE_TOKENS + partial,
                "output_length": rng.randint(1, 500),
                "hash_ids": [*ids, next_id],
            }
        )
        next_id += 1
    return lines


def test_a_mooncake_trace(served: Served, tmp_path: Path) -> None:
    lines = mooncake_lines(Random(3), 300)
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trie = Trie()
    hits = sum(trie.insert(line["hash_ids"][: line["input_length"] // MOONCAKE_TOKENS]) for line in lines)
    document = replay(served, path)
    check(served, document, [line["input_length"] for line in lines], hits * MOONCAKE_TOKENS)
    assert document["resumes"]["snapshot"] > 50
    assert document["resumes"]["bounded_replay"] > 30
