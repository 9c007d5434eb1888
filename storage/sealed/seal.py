"""Sealing one payload: AES-256-GCM under a key of the record's own, bound to what the record says of itself.

A sealed payload is a nonce of 12 random bytes, the ciphertext, and a tag of 16 bytes. The key is HMAC-SHA256 of the
record's id under the tenant's key, so a nonce need only be unique among the writings of one id. What is authenticated
beside the payload: id, provenance, length, the number of the tenant's key, and what the record supersedes. So a record
can be neither moved under another id, nor relabelled as exact, nor cut. docs/decisions/0013 has the reasons.
"""

import hmac
import struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from storage.base import Payload, RecordId, pack_id
from storage.sealed.keys import NONCE_BYTES, SEAL_BYTES

_PURPOSE = b"kvshelf sealed record 1"
_CLAIMS = struct.Struct("<BQI?")


class Claims(NamedTuple):
    """What a record says of itself, as far as the seal holds it to that. ``length_bytes`` is of the plain payload."""

    id: RecordId
    provenance: int
    length_bytes: int
    key_number: int
    supersedes: bytes | None

    def pack(self) -> bytes:
        """The bytes that are authenticated beside the payload."""
        fixed = _CLAIMS.pack(self.provenance, self.length_bytes, self.key_number, self.supersedes is not None)
        return _PURPOSE + pack_id(self.id) + fixed + (self.supersedes or b"")


def seal(tenant_key: bytes, claims: Claims, payload: Payload, nonce: bytes) -> bytearray:
    """The sealed payload. ``nonce`` is random, of ``NONCE_BYTES``."""
    sealed = bytearray(SEAL_BYTES + claims.length_bytes)
    sealed[:NONCE_BYTES] = nonce
    _cipher(tenant_key, claims).encrypt_into(nonce, payload, claims.pack(), memoryview(sealed)[NONCE_BYTES:])
    return sealed


def unseal(tenant_key: bytes, claims: Claims, sealed: Payload) -> bytearray | None:
    """The plain payload; None when this is not what was sealed under that key with those claims."""
    data = memoryview(sealed)
    if data.nbytes != SEAL_BYTES + claims.length_bytes:
        return None
    plain = bytearray(claims.length_bytes)
    try:
        _cipher(tenant_key, claims).decrypt_into(data[:NONCE_BYTES], data[NONCE_BYTES:], claims.pack(), plain)
    except InvalidTag:
        return None
    return plain


def _cipher(tenant_key: bytes, claims: Claims) -> AESGCM:
    return AESGCM(hmac.digest(tenant_key, _PURPOSE + pack_id(claims.id), "sha256"))
