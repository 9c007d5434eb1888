"""Budgets of owners in a pool that many share: who is over theirs loses their own records, the least used first.

Redis evicts by its own lights, whoever a record is of. So this process counts what it stored and saw of each owner,
and takes records out before Redis must.
"""

from collections.abc import Mapping

RECORD_OVERHEAD_BYTES = 1024
"""What a record takes in Redis beside its payload: key, header, object, and how memory is cut; rounded up."""
KEPT_SHARE = 0.95
"""Whoever is over a budget is brought down to this share of it, so that not every write evicts."""


class Quotas:
    """Bytes that owners may take, each its own or all others together.

    Args:
        own: budgets of the owners that have their own.
        rest_bytes: budget of all others together.
        max_records: how many records are known at a time. No record counts less than its share of that, so that many
            small ones cannot push others out of what is known.
    """

    def __init__(self, own: Mapping[str, int], rest_bytes: int, max_records: int) -> None:
        self._budgets: dict[str | None, int] = {None: rest_bytes, **dict(own.items())}
        self._least_bytes = sum(self._budgets.values()) // max_records

    def account_of(self, owner: str) -> str | None:
        """Whose budget an owner's records are on: its own, or None, that of all others."""
        return owner if owner in self._budgets else None

    def cost_bytes(self, payload_bytes: int) -> int:
        """What a record counts for."""
        return max(payload_bytes + RECORD_OVERHEAD_BYTES, self._least_bytes)

    def fits(self, owner: str, payload_bytes: int) -> bool:
        """Whether a record could be kept if it were the only one on its budget."""
        return self.cost_bytes(payload_bytes) <= self._budgets[self.account_of(owner)]

    def surplus(self, taken_bytes: Mapping[str | None, int]) -> dict[str | None, int]:
        """Bytes to take away of each account that is over its budget."""
        return {
            account: taken - int(self._budgets[account] * KEPT_SHARE)
            for account, taken in taken_bytes.items()
            if taken > self._budgets[account]
        }
