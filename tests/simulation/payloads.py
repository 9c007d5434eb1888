"""Payloads that carry the truth about their KV, and follow from key, shard and truth to the last byte."""

import hashlib

UNTAINTED = 0
"""The truth about KV that is bit-identical to a full prefill's. Any other number names the run that made it."""

TRUTH_BYTES = 4


def payload_of(kind: int, key: bytes, shard: int, truth: int, size: int) -> bytearray:
    """The payload of a record, at least ``TRUTH_BYTES`` long: untainted KV is the same whoever made it."""
    head = truth.to_bytes(TRUTH_BYTES, "little")
    seed = b"%d %d %b%b" % (kind, shard, key, head)
    return bytearray(head + hashlib.shake_128(seed).digest(size - TRUTH_BYTES))


def truth_of(payload: bytes | bytearray | memoryview, kind: int, key: bytes, shard: int) -> int:
    """The truth a payload carries.

    Raises:
        AssertionError: some byte is not of this record.
    """
    truth = int.from_bytes(bytes(payload[:TRUTH_BYTES]), "little")
    if bytes(payload) != payload_of(kind, key, shard, truth, len(payload)):
        raise AssertionError(f"wrong bytes under {key.hex()[:12]}, shard {shard}")
    return truth
