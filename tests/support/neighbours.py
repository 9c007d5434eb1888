"""Two tenants of one real service: one works on its sessions, the other floods it with what nobody asks for again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from kvshelf_client.frames import FrameKind
from tests.support.engine import BLOCK, frame, keys_of, plan, register, release, store, tokens

BYTES_PER_TOKEN = 256
BLOCK_BYTES = BLOCK * BYTES_PER_TOKEN
SESSIONS, TURNS, TURN_BLOCKS = 8, 3, 4
FLOOD_BLOCKS, FLOOD_SNAPSHOTS = 160, 80
"""What the flood stores in each turn of the other's: in a round of turns more than there is room for."""


class HitRate(NamedTuple):
    """Shares of the tokens of all prompts: whose global KV was there, and that were skipped thanks to a snapshot."""

    global_kv: float
    snapshots: float


@dataclass
class Neighbours:
    """Clients with the tokens of two tenants, ``worker`` and ``flooder``."""

    worker: httpx.Client
    flooder: httpx.Client

    def register(self) -> None:
        """Register the namespace ``ns`` of each."""
        for client in (self.worker, self.flooder):
            register(client, bytes_per_token=BYTES_PER_TOKEN)

    def work(self, meanwhile: Callable[[int], None] = lambda _: None) -> HitRate:
        """Sessions that grow turn by turn, one turn of each in its turn; ``meanwhile`` is told the number of each."""
        prompt_tokens = hit_tokens = snapshot_tokens = 0
        for turn in range(TURNS):
            for session in range(SESSIONS):
                meanwhile(turn * SESSIONS + session)
                prompt = tokens((turn + 1) * TURN_BLOCKS * BLOCK + 1, seed=session)
                planned = plan(self.worker, prompt)
                sources = self._run(self.worker, prompt, planned)
                if turn:
                    prompt_tokens += planned["plan"]["prompt_tokens"]
                    hit_tokens += planned["hit_tokens"]
                    snapshot_tokens += sources["replay"] == 0 and planned["plan"]["saved_tokens"]
        return HitRate(hit_tokens / prompt_tokens, snapshot_tokens / prompt_tokens)

    def flood(self, number: int) -> None:
        """Store a prompt that never comes again, and snapshots all along it."""
        prompt = tokens(FLOOD_BLOCKS * BLOCK + 1, seed=1000 + number)
        keys = keys_of(self.flooder, prompt)
        step = FLOOD_BLOCKS // FLOOD_SNAPSHOTS
        snapshots = [
            frame(keys[end - 1], end * BLOCK, kind=FrameKind.SNAPSHOT) for end in range(step, FLOOD_BLOCKS + 1, step)
        ]
        frames = _large(keys) + b"".join(snapshots)
        answer = store(
            self.flooder, frames, plan_id=plan(self.flooder, prompt)["plan"]["plan_id"], durability="relaxed"
        )
        assert answer["counts"] == {"stored": FLOOD_BLOCKS + FLOOD_SNAPSHOTS}

    def _run(self, client: httpx.Client, prompt: bytes, planned: dict[str, dict[str, str]]) -> dict[str, int]:
        keys = keys_of(client, prompt)
        frames = _large(keys) + frame(keys[-1], len(keys) * BLOCK, kind=FrameKind.SNAPSHOT)
        store(client, frames, plan_id=planned["plan"]["plan_id"], durability="relaxed")
        return release(client, planned)


def _large(keys: list[str]) -> bytes:
    return b"".join(
        frame(key, end, payload=bytes.fromhex(key)[:1] * BLOCK_BYTES)
        for key, end in zip(keys, range(BLOCK, len(keys) * BLOCK + 1, BLOCK), strict=True)
    )
