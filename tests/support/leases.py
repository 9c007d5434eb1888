"""Leases with everything but the point of a test filled in, and holds that say whether they are still held."""

from collections.abc import Sequence

from service.leases.lease import Answer, Lease
from service.namespaces import Namespace
from service.planner import request_for, resume_plan
from service.planner.base import Cached
from storage.base import Entry, Hold, Loaded, Miss
from tests.support.namespaces import namespace
from tests.support.records import entry_named

NAMESPACE = namespace()


class OpenHold(Hold):
    """A hold on made-up entries. ``is_held`` until it is released."""

    def __init__(self, records: int) -> None:
        self.entries: list[Entry | Miss] = [entry_named(number) for number in range(records)]
        self.is_held = True

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`. Payloads are empty."""
        if not self.is_held:
            raise ValueError("this hold was released")
        return [Loaded(one, b"") if isinstance(one, Entry) else one for one in self.entries[start:end]]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self.is_held = False


def make_lease(
    lease_id: str,
    request_id: str | None = None,
    *,
    holds: Sequence[Hold] = (),
    snapshot: Hold | None = None,
    ttl_seconds: float = 60.0,
    keys: Sequence[bytes] = (),
    of: Namespace = NAMESPACE,
) -> Lease:
    """A lease for a cold plan, of a request of its own where none is named."""
    plan = resume_plan(of.layout, request_for(of.layout, 100), Cached(0, 0))
    return Lease(
        lease_id=lease_id,
        request_id=request_id or f"request of {lease_id}",
        namespace=of,
        primary=Answer(f"plan of {lease_id}", plan),
        fallback=None,
        hit_tokens=0,
        ttl_seconds=ttl_seconds,
        keys=keys,
        blocks=tuple(holds),
        snapshot=snapshot,
    )
