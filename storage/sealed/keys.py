"""The keys of one tenant."""

from collections.abc import Mapping

KEY_BYTES = 32
MAX_KEY_NUMBER = 0xFFFF
NONCE_BYTES, TAG_BYTES = 12, 16
SEAL_BYTES = NONCE_BYTES + TAG_BYTES
"""What a sealed payload has more than the plain one."""


class TenantKeys:
    """Keys by number, 1 to ``MAX_KEY_NUMBER``. The highest number seals; all of them open what they sealed.

    Args:
        keys: at least one, of ``KEY_BYTES`` each.

    Raises:
        ValueError: none, or one of another length or number. Never has a key in its text.
    """

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        if not keys:
            raise ValueError("a tenant with encryption has at least one key")
        for number, key in keys.items():
            if not 1 <= number <= MAX_KEY_NUMBER:
                raise ValueError(f"a key's number is from 1 to {MAX_KEY_NUMBER}, got {number}")
            if len(key) != KEY_BYTES:
                raise ValueError(f"key {number} must have {KEY_BYTES} bytes, has {len(key)}")
        self._keys = dict(keys)
        self.newest = max(keys)
        """The number of the key that seals."""

    def __contains__(self, number: int) -> bool:
        """Whether there is a key of that number."""
        return number in self._keys

    def __getitem__(self, number: int) -> bytes:
        """The key of a number; raises KeyError."""
        return self._keys[number]

    def __repr__(self) -> str:
        return f"TenantKeys(numbers={sorted(self._keys)})"

    @property
    def numbers(self) -> list[int]:
        """All numbers, lowest first."""
        return sorted(self._keys)
