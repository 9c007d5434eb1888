"""Payloads that prove themselves: made from nothing but the record's name and how its KV was computed.

A real engine's replayed KV differs from exact KV in some bits. So do these payloads, which catches a record that is
served as exact although what was stored had been computed on a replay.
"""

import hashlib
import struct

from kvshelf_client.words import Provenance, RecordClass
from service.replay.errors import WrongBytesError

_DOMAIN = b"kvshelf replay payload v1\n"
_pack_name = struct.Struct("<BBH").pack


def payload_of(record_class: int, key: bytes, shard: int, computed: Provenance, length_bytes: int) -> bytes:
    """The payload of a record whose KV was ``computed`` exactly or on a replay: SHAKE-128 over its name."""
    name = _pack_name(record_class, computed, shard) + key
    return hashlib.shake_128(_DOMAIN + name).digest(length_bytes)


def check_payload(record_class: int, key: bytes, shard: int, served: Provenance, payload: bytes | bytearray) -> None:
    """Compare a block or snapshot as it arrived with what was stored under its name.

    One that is served as exact must have been computed exactly. One that is served as replayed may be either: the
    service may lower a claim.

    Raises:
        WrongBytesError: any byte differs.
    """
    candidates = (served,) if served is Provenance.EXACT else (Provenance.REPLAYED, Provenance.EXACT)
    for computed in candidates:
        if payload == payload_of(record_class, key, shard, computed, len(payload)):
            return
    what = RecordClass(record_class).name.lower()
    raise WrongBytesError(
        f"{what} {key.hex()[:12]}, shard {shard}, served as {served.name.lower()}: "
        f"the {len(payload)} bytes are not those that were stored"
    )
