"""Sessions of several turns over several nodes, as engines serve them: plan, fetch, check every byte, store, release.

What each turn found is kept beside what it should have found, so that what was lost is counted and not guessed.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kvshelf_client import Fault, Loaded, Nodes, Plan, Provenance, RecordClass, StoreRecord
from kvshelf_client.answers import Namespace, Resume
from service.replay.payloads import check_payload, payload_of
from storage.clock import SystemClock
from tests.support.client import Buffers
from tests.support.engine import tokens


@dataclass(frozen=True)
class Turn:
    """One request of a session. ``due_tokens`` were stored by the turns before it, all of them full blocks."""

    session: str
    number: int
    home: str
    """The node that the session has its place on."""
    node: str | None
    due_tokens: int
    hit_tokens: int
    ran: Resume
    faults: frozenset[Fault]
    seconds: float

    @property
    def lost_tokens(self) -> int:
        """What was stored and not found."""
        return max(0, self.due_tokens - self.hit_tokens)


@dataclass
class Chat:
    """All sessions, one turn of each after the other, by several engines at a time.

    Args:
        sessions: how many; no two share a token.
        first_tokens: length of the first prompt.
        turn_tokens: what each turn adds.
    """

    nodes: Nodes
    namespace: Namespace
    sessions: int
    first_tokens: int
    turn_tokens: int
    turns: list[Turn] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self, numbers: Sequence[int], engines: int, on_turn: Callable[[int], None] = lambda count: None) -> None:
        """Play these turns of all sessions; ``on_turn`` is told how many turns are over, in the engine's thread."""

        def serve(session: int, number: int) -> None:
            turn = self._serve(session, number)
            with self._lock:
                self.turns.append(turn)
                count = len(self.turns)
            on_turn(count)

        with ThreadPoolExecutor(engines) as pool:
            for number in numbers:
                for done in [pool.submit(serve, session, number) for session in range(self.sessions)]:
                    done.result()

    def _serve(self, session: int, number: int) -> Turn:
        clock, name = SystemClock(), f"session-{session}"
        started = clock.monotonic()
        prompt = tokens(self.first_tokens + number * self.turn_tokens, seed=session + 1)
        plan = self.nodes.plan(self.namespace, affinity=name, tokens=prompt)
        client, buffers = self.nodes.of(plan), Buffers(self.namespace)
        loaded = client.fetch_into(plan, buffers)
        self._check(plan, loaded, buffers)
        stored = client.store(self.namespace, self._made(plan, loaded.resume), ran=loaded.resume)
        client.release(plan, loaded.resume)
        size = self.namespace.block_tokens
        before = self.first_tokens + (number - 1) * self.turn_tokens
        return Turn(
            session=name,
            number=number,
            home=self.nodes.order_of(name)[0],
            node=plan.node,
            due_tokens=before // size * size if number else 0,
            hit_tokens=plan.hit_tokens,
            ran=loaded.resume,
            faults=frozenset(each.fault for each in (plan, loaded, stored) if each.fault is not None),
            seconds=clock.monotonic() - started,
        )

    def _check(self, plan: Plan, loaded: Loaded, buffers: Buffers) -> None:
        for slot, reason, provenance in loaded.records:
            if reason is None and provenance is not None:
                key = plan.keys[slot.end_tokens // self.namespace.block_tokens - 1]
                check_payload(slot.record_class, key, slot.shard, provenance, buffers.of[slot])

    def _made(self, plan: Plan, ran: Resume) -> Iterator[StoreRecord]:
        """What the run has computed: the blocks behind the write floor, and the state at the end of the last one."""
        size, computed = self.namespace.block_tokens, Provenance.EXACT if ran.exact else Provenance.REPLAYED
        last = len(plan.keys) * size
        places = [(RecordClass.BLOCK, end) for end in range(ran.write_floor + size, last + 1, size)]
        for record_class, end in [*places, (RecordClass.SNAPSHOT, last)]:
            key, length = plan.keys[end // size - 1], self.namespace.bytes_of(record_class)
            yield StoreRecord(record_class, key, end, payload_of(record_class, key, 0, computed, length), computed)
