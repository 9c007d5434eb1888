"""A service that something happens to between two calls of a replay: the fake behind it is the real one."""

from collections.abc import Callable, Iterable, Iterator

from kvshelf_client.answers import PlanAnswer, StoreResult
from kvshelf_client.client import Client
from kvshelf_client.frames import Frame
from kvshelf_client.requests import StoreRecord


class MeddlingService:
    """Passes every verb on to a client.

    Args:
        client: of the real service.
        after_plan: called with each plan before the replay sees it.
        on_frames: may change the frames of a fetch on their way.
    """

    def __init__(
        self,
        client: Client,
        *,
        after_plan: Callable[[PlanAnswer], None] = lambda plan: None,
        on_frames: Callable[[Iterator[Frame]], Iterator[Frame]] = lambda frames: frames,
    ) -> None:
        self._client = client
        self._after_plan = after_plan
        self._on_frames = on_frames
        self.plans: list[PlanAnswer] = []
        self.released: list[tuple[str, str]] = []

    def plan(
        self,
        namespace: str,
        *,
        hashes: list[bytes],
        prompt_tokens: int,
        request_id: str,
        max_load_bytes_per_saved_token: float | None = None,
    ) -> PlanAnswer:
        """See :meth:`Client.plan`."""
        plan = self._client.plan(
            namespace,
            hashes=hashes,
            prompt_tokens=prompt_tokens,
            request_id=request_id,
            max_load_bytes_per_saved_token=max_load_bytes_per_saved_token,
        )
        self.plans.append(plan)
        self._after_plan(plan)
        return plan

    def fetch(self, lease_id: str) -> Iterator[Frame]:
        """See :meth:`Client.fetch`."""
        return self._on_frames(self._client.fetch(lease_id))

    def store(
        self,
        namespace: str,
        records: Iterable[StoreRecord],
        *,
        plan_id: str,
        durable: bool,
        supersedes: bytes | None,
    ) -> StoreResult:
        """See :meth:`Client.store`."""
        return self._client.store(namespace, records, plan_id=plan_id, durable=durable, supersedes=supersedes)

    def release(self, lease_id: str, *, ran: str) -> None:
        """See :meth:`Client.release`."""
        self.released.append((lease_id, ran))
        self._client.release(lease_id, ran=ran)
