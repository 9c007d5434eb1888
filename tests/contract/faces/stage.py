"""Where scenarios play: a service of its own for each way to reach it, the same in everything else, time too."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvshelf_client import NamespaceSpec, StoreRecord, Tls
from kvshelf_client.answers import Namespace
from kvshelf_client.plans import Plan
from kvshelf_client.words import Provenance, RecordClass
from service.settings import load_settings
from storage.clock import ManualClock
from storage.ssd import SsdTier
from tests.contract.faces.callers import CLIENTS, Caller
from tests.support.certificates import Authority
from tests.support.engine import BLOCK, PROFILE, payload_of, tokens
from tests.support.live import Live, live
from tests.support.service import make_parts
from tests.support.tokens import two_tenants

FACES: dict[str, Callable[[Live], str | None]] = {
    "rest": lambda face: face.url,
    "grpc": lambda face: face.grpc_url,
    "local": lambda face: face.url,
}
"""Every face, and where it is. Over the local one blocks are fetched, and the rest goes over REST."""
SHELF = "shelf"
"""The directory of the SSD tier, in that of the stage."""
BUDGET_BYTES = 16 << 20
LIMITS = {"max_prompt_tokens": 4000, "max_list_items": 4, "max_store_records": 40}


@dataclass
class Stage:
    """One way to reach a service. ``caller`` is strict; ``open`` makes another one, with other options."""

    directory: Path
    face: Live
    clock: ManualClock
    caller: Caller
    open: Callable[..., Caller]
    is_guarded: bool
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def namespace(self, **changes: Any) -> Namespace:
        """A new miniature namespace."""
        name = f"ns{next(self.numbers)}"
        spec: dict[str, Any] = {
            "tenant": "a",
            "model": name,
            "weights_revision": "1",
            "profile": PROFILE,
            "bytes_per_token": 1,
        }
        made = self.caller.register(name, NamespaceSpec(**spec | {"block_tokens": BLOCK} | changes))
        assert made is not None
        return made

    def plan(self, namespace: Namespace, prompt_tokens: int, **options: Any) -> Plan:
        """A plan of the one conversation there is, under a name of its own."""
        name = options.pop("request_id", f"request {next(self.numbers)}")
        return self.caller.plan(namespace, tokens=tokens(prompt_tokens), request_id=name, **options)

    def records(self, plan: Plan, blocks: range, snapshot: int | None = None) -> list[StoreRecord]:
        """Records of a plan's prompt, all shards of each, whose payloads follow from their keys."""
        wanted = [(RecordClass.BLOCK, number) for number in blocks]
        wanted += [] if snapshot is None else [(RecordClass.SNAPSHOT, snapshot // BLOCK - 1)]
        return [
            StoreRecord(
                kind,
                plan.keys[number],
                (number + 1) * BLOCK,
                payload_of(plan.keys[number].hex(), plan.namespace.bytes_of(kind), shard),
                Provenance.EXACT,
                shard,
            )
            for kind, number in wanted
            for shard in range(plan.namespace.shards)
        ]

    def serve_cold(self, namespace: Namespace, prompt_tokens: int) -> Plan:
        """Run a prompt cold: all its full blocks and the snapshot at its last boundary are stored."""
        plan = self.plan(namespace, prompt_tokens)
        blocks = prompt_tokens // BLOCK
        has_state = namespace.snapshot_bytes > 0
        records = self.records(plan, range(blocks), blocks * BLOCK if has_state else None)
        self.caller.store(namespace, records, ran=plan.resume)
        self.caller.release(plan, plan.resume)
        return plan


@contextmanager
def staged(directory: Path, face: str, client: str, *, is_guarded: bool) -> Iterator[Stage]:
    """A stage. A guarded one has TLS, and tokens, of which the caller has that of tenant ``a``."""
    flags: dict[str, Any] = {
        "grpc": {"port": 0},
        "limits": LIMITS,
        "store": {"data_dir": directory, "budget_bytes": 2 * BUDGET_BYTES},
        "access": {"tenants": {"a": {"store_budget_bytes": BUDGET_BYTES}}},
    }
    options: dict[str, Any] = {"strict": True, "budget_seconds": 20.0, "local": face == "local"}
    if is_guarded:
        authority = Authority(directory)
        pair = authority.issue("server")
        flags["tls"] = {"cert_file": pair.cert, "key_file": pair.key}
        options |= {"tls": Tls(ca_file=str(authority.file)), "token": "a"}
    clock = ManualClock()
    settings = load_settings(flags=flags, environment={})
    blocks = SsdTier(directory / SHELF, clock=clock, ttl_seconds=settings.store.ttl_seconds, budget_bytes=BUDGET_BYTES)
    access = two_tenants() if is_guarded else None
    parts = make_parts(directory, clock, settings=settings, blocks=blocks, access=access)
    with ExitStack() as closing:
        closing.callback(parts.close)
        running = closing.enter_context(live(parts, with_local=face == "local"))
        url = FACES[face](running)

        def open_caller(**changes: Any) -> Caller:
            caller: Caller = closing.enter_context(CLIENTS[client](url or "", options | changes))
            return caller

        yield Stage(directory, running, clock, open_caller(), open_caller, is_guarded)
        taken = parts.metrics.local_records._value.get()
        assert bool(taken) == (face == "local"), f"{taken} blocks were fetched over the local path"
