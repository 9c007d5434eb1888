"""Encryption at rest: a tier around another one, which gets to see sealed payloads only.

``storage.sealed.tier`` takes the library of the extra ``encryption``; the keys alone do not.
"""

from storage.sealed.keys import KEY_BYTES, SEAL_BYTES, TenantKeys

__all__ = ["KEY_BYTES", "SEAL_BYTES", "TenantKeys"]
