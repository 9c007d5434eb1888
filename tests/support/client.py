"""What tests do with a client again and again."""

from collections.abc import Callable

from kvshelf_client import Client, Loaded, NamespaceSpec, Plan, RecordClass, Slot
from kvshelf_client.answers import Namespace


def registered(client: Client, name: str, spec: NamespaceSpec) -> Namespace:
    """A namespace that could be registered."""
    namespace = client.register(name, spec)
    assert namespace is not None
    return namespace


class Buffers:
    """A destination that has a buffer for each slot, made when it is first asked for."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.of: dict[Slot, bytearray] = {}

    def __call__(self, slot: Slot) -> bytearray:
        if slot not in self.of:
            self.of[slot] = bytearray(self._namespace.bytes_of(slot.record_class))
        return self.of[slot]


def discarding(namespace: Namespace) -> Callable[[Slot], bytearray]:
    """A destination that puts all records of a class into the same buffer, one after the other."""
    buffers = {each: bytearray(namespace.bytes_of(each)) for each in RecordClass}
    return lambda slot: buffers[slot.record_class]


def loaded_bytes(loaded: Loaded, namespace: Namespace) -> int:
    """The payload bytes of what was loaded; all of it must have been."""
    assert loaded.fault is None
    return sum(namespace.bytes_of(record.slot.record_class) for record in loaded.records)


def fetched(client: Client, plan: Plan, shard: int | None = None) -> tuple[Loaded, dict[Slot, bytes]]:
    """Fetch what a plan loads; returns the payloads that are good."""
    buffers = Buffers(plan.namespace)
    loaded = client.fetch_into(plan, buffers, shard=shard)
    return loaded, {record.slot: bytes(buffers.of[record.slot]) for record in loaded.records if record.reason is None}
