"""Replay parts of the public traces against a running service and compare the hit tokens with an independent trie's.

The service must be started with long lifetimes and ample budgets, for instance::

    KVSHELF_POOL__TTL_SECONDS=86400 kvshelf serve --redis-url redis://127.0.0.1:6379
    python -m tests.load.check_replay FOLDER --url http://127.0.0.1:8710

``FOLDER`` is that of :mod:`tests.load.check_known_answers`. Exit status 1 when a figure differs. Some minutes.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from service.cli import console
from service.cli.replay import DEFAULT_URL
from service.traces.reader import read_trace
from tests.support.traces import hit_tokens_of

_RUNS = (
    ("mooncake-conversation.jsonl.gz", None, 2000),
    ("coding-agents.jsonl.gz", 20, None),
)


def check(folder: Path, url: str) -> bool:
    """Replay each part in a process of its own; False when one differs."""
    good = True
    for name, sessions, requests in _RUNS:
        command = [sys.executable, "-m", "service.cli.main", "replay", str(folder / name), "--url", url, "--json"]
        command += ["--sessions", str(sessions)] if sessions else []
        command += ["--requests", str(requests)] if requests else []
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        replayed = json.loads(result.stdout)
        trace = read_trace(folder / name, sessions_limit=sessions, requests_limit=requests)
        expected = {
            "requests": len(trace.requests),
            "prompt_tokens": trace.input_tokens,
            "hit_tokens": hit_tokens_of(trace),
        }
        differing = {key: replayed[key] for key, value in expected.items() if replayed[key] != value}
        good = good and not differing
        console.say(f"{'FAIL' if differing else 'ok  '} {name} in {replayed['elapsed_seconds']:.0f} s: {expected}")
        if differing:
            console.say(f"     but the replay says {differing}")
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    parser = argparse.ArgumentParser(description="Compare replays of the public traces with an independent trie.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default=DEFAULT_URL)
    parsed = parser.parse_args(arguments)
    try:
        return 0 if check(parsed.folder, parsed.url) else 1
    except subprocess.CalledProcessError as error:
        console.warn(f"the replay ended with status {error.returncode}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
