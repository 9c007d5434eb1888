"""What engines sent to a service, what it acknowledged as durable, and what became of that."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kvshelf_client.frames import FrameHeader
from kvshelf_client.words import Provenance, RecordClass
from tests.simulation.payloads import UNTAINTED, truth_of


class Conversation(NamedTuple):
    """A conversation as far as it got, and the keys of its full blocks."""

    name: str
    keys: Sequence[bytes]


class Account:
    """Shared by all engines of a trial. ``wrong`` has a sentence for everything that must not be. Thread-safe.

    A payload proves itself to the last byte (:mod:`tests.simulation.payloads`), and carries the truth about its KV.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[RecordClass, bytes], set[int]] = {}
        self._durable: set[bytes] = set()
        self._conversations: dict[str, Conversation] = {}
        self.damaged: set[bytes] = set()
        """Blocks whose bytes on disk were changed by the trial, and that were not stored again since."""
        self.tried: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._seconds: dict[str, list[float]] = {}

    def sending(self, kind: RecordClass, key: bytes, truth: int) -> None:
        """A record is about to be sent: from now on it may turn up, acknowledged or not."""
        with self._lock:
            self._sent.setdefault((kind, key), set()).add(truth)

    def acknowledged(self, conversation: Conversation, stored: Sequence[bytes], found: Sequence[bytes]) -> None:
        """Blocks of a conversation were acknowledged as durable: stored, or found to be there."""
        with self._lock:
            self._durable.update(stored, found)
            self.damaged.difference_update(stored)
            self.tried["blocks acknowledged as durable"] += len(stored) + len(found)
            self._conversations[conversation.name] = conversation

    def received(self, header: FrameHeader, payload: bytes) -> int | None:
        """Check every byte of a record that came; the truth about its KV, None where it is wrong."""
        kind = RecordClass(header.kind)
        try:
            truth = truth_of(payload, kind, header.key, header.shard)
        except AssertionError as error:
            self.is_wrong(str(error))
            return None
        with self._lock:
            self.tried["records received"] += 1
            self.tried["bytes verified"] += len(payload)
            is_known = truth in self._sent.get((kind, header.key), ())
        if not is_known:
            self.is_wrong(f"{header} was never sent like that")
        if header.provenance is Provenance.EXACT and truth != UNTAINTED:
            self.is_wrong(f"replayed KV passes for exact: {header}")
        return truth

    def is_wrong(self, what: str) -> None:
        """Take note of something that must not be."""
        with self._lock:
            self.wrong.append(what)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that was tried or seen."""
        with self._lock:
            self.tried[what] += number

    def took(self, what: str, seconds: float) -> None:
        """Something took so long."""
        with self._lock:
            self._seconds.setdefault(what, []).append(seconds)

    def figures(self) -> dict[str, float]:
        """How long everything took, and how often it was done."""
        with self._lock:
            found: dict[str, float] = {}
            for what, unordered in sorted(self._seconds.items()):
                seconds = sorted(unordered)
                found[f"{what}: times"] = len(seconds)
                found[f"{what}: median seconds"] = seconds[len(seconds) // 2]
                found[f"{what}: 99.9 % within seconds"] = seconds[len(seconds) * 999 // 1000]
                found[f"{what}: longest seconds"] = seconds[-1]
            return found

    def conversations(self) -> list[Conversation]:
        """All conversations with acknowledged blocks."""
        with self._lock:
            return list(self._conversations.values())

    def promised(self, conversation: Conversation) -> list[bytes]:
        """The blocks of a conversation that must be there: acknowledged as durable, and not damaged by the trial."""
        with self._lock:
            return [key for key in conversation.keys if key in self._durable and key not in self.damaged]

    def damage(self, key: bytes) -> None:
        """The bytes of a block on disk are about to be changed."""
        with self._lock:
            self.damaged.add(key)
