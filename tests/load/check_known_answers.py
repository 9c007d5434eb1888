"""Read the public traces and compare what an infinite cache would hit with the figures known for them.

The traces are no part of the project. Run it as::

    python -m tests.load.check_known_answers FOLDER

with ``clients`` on the path of Python, or the project installed. ``FOLDER`` holds ``mooncake-conversation.jsonl.gz``
(kvcache-ai/Mooncake, FAST'25 release) and ``coding-agents.jsonl.gz`` (callanjfox/kv-cache-tester, compacted). Exit
status 1 when a figure differs or a file is missing. It takes a quarter of a minute and 0.5 GB of memory.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from service.cli import console
from service.traces.base import Trace, TraceError
from service.traces.chain import ChainHasher
from service.traces.reader import read_trace
from tests.support.traces import hit_tokens_of


class Figures(NamedTuple):
    """What is known of a trace. Full blocks of prompts only; answers are not counted as cached."""

    requests: int
    input_tokens: int
    hit_rate: float


KNOWN = {
    "mooncake-conversation": Figures(12_031, 144_793_823, 0.37338),
    "coding-agents": Figures(34_191, 4_176_757_553, 0.96334),
}


def hit_tokens_by_keys(trace: Trace) -> int:
    """Hit tokens as the replayer's chained keys count them."""
    hasher, seen, blocks = ChainHasher(bytes(32)), set[bytes](), 0
    for request in trace.requests:
        keys = hasher.blocks_of(request).keys
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys[middle] in seen else (low, middle)
        blocks += low
        seen.update(keys[low:])
    return blocks * trace.block_tokens


def check(folder: Path) -> bool:
    """Print the figures of every known trace; False when one differs."""
    good = True
    for name, known in KNOWN.items():
        trace = read_trace(folder / f"{name}.jsonl.gz")
        by_trie, by_keys = hit_tokens_of(trace), hit_tokens_by_keys(trace)
        found = Figures(len(trace.requests), trace.input_tokens, round(by_trie / trace.input_tokens, 5))
        same = found == known and by_trie == by_keys and not trace.bad_lines
        good = good and same
        console.say(
            f"{'ok  ' if same else 'FAIL'} {name}: {found.requests:,} requests, {found.input_tokens:,} tokens, "
            f"hit rate {found.hit_rate:.5f} (known {known.hit_rate:.5f}), "
            f"hit tokens {by_trie:,} by trie, {by_keys:,} by keys"
        )
    return good


def main(arguments: Sequence[str]) -> int:
    """The command; see the module."""
    if len(arguments) != 1:
        console.warn("usage: python -m tests.load.check_known_answers FOLDER")
        return 2
    try:
        return 0 if check(Path(arguments[0])) else 1
    except TraceError as error:
        console.warn(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
