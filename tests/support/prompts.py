"""Prompts that are stored in a service, whose every byte is known."""

import hashlib
import struct
from dataclasses import replace

from kvshelf_client import Client, Loaded, NamespaceSpec, Plan, RecordClass, Slot, StoreRecord, Tls
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance
from tests.support.client import registered
from tests.support.engine import BLOCK, PROFILE

SPEC = NamespaceSpec(tenant="default", model="m", weights_revision="1", profile=PROFILE, bytes_per_token=37)


class Prompts:
    """Stores ``count`` prompts of so many ``blocks``, each with the snapshot that a plan of it uses.

    ``salt`` is for a namespace of their own.
    """

    def __init__(self, url: str, count: int, blocks: int, *, salt: str = "", tls: Tls | None = None) -> None:
        self.count, self.blocks = count, blocks
        with Client(url, strict=True, budget_seconds=30, tls=tls or Tls()) as client:
            self.namespace = registered(client, f"prompts{salt}", replace(SPEC, salt=salt))
            for number in range(count):
                plan = client.plan(self.namespace, tokens=self.tokens(number))
                result = client.store(self.namespace, self._records(number), ran=plan.resume)
                assert set(result.counts) == {"stored"}
                client.release(plan, plan.resume)

    def tokens(self, number: int) -> bytes:
        """The prompt: all of its stored blocks are loaded by a plan."""
        return struct.pack("<I", number + 1) * (self.blocks * BLOCK + 129)

    def payload(self, number: int, slot: Slot) -> bytes:
        """The bytes of one of its records."""
        name = f"{number} {slot.record_class} {slot.end_tokens}".encode()
        return hashlib.shake_128(name).digest(self.namespace.bytes_of(slot.record_class))

    def is_whole(self, number: int, plan: Plan, loaded: Loaded, buffers: dict[Slot, bytearray]) -> bool:
        """Whether all that a plan of the prompt loads has come, every byte of it right."""
        slots = plan.slots(plan.resume)
        return (
            loaded.resume is plan.resume
            and len(slots) == self.blocks + 1
            and all(buffers[slot] == self.payload(number, slot) for slot in slots)
        )

    def _records(self, number: int) -> list[StoreRecord]:
        keys = block_keys(self.namespace.fingerprint, self.tokens(number), BLOCK)
        slots = [Slot(RecordClass.BLOCK, (index + 1) * BLOCK) for index in range(self.blocks)]
        slots.append(Slot(RecordClass.SNAPSHOT, self.blocks * BLOCK))
        return [
            StoreRecord(
                slot.record_class,
                keys[slot.end_tokens // BLOCK - 1],
                slot.end_tokens,
                self.payload(number, slot),
                Provenance.EXACT,
            )
            for slot in slots
        ]
