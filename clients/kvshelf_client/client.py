"""The client for threads: one method a verb, over whatever transport the address names."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kvshelf_client.answers import HashedTokens, Health, Namespace, Resume, StoreResult
from kvshelf_client.deadline import sleep
from kvshelf_client.guard import Pause, Steps, Try
from kvshelf_client.landing import Loaded
from kvshelf_client.places import Places
from kvshelf_client.plans import Plan
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.steps import run
from kvshelf_client.transport import Transport, transport_module
from kvshelf_client.verbs import Verbs
from kvshelf_client.words import RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from kvshelf_client.landing import Destination
    from kvshelf_client.options import ClientOptions
    from kvshelf_client.verbs import PlanOptions

T = TypeVar("T")


class Client(Verbs):
    """A client of one service, for threads.

    ``service`` is its address, such as ``http://127.0.0.1:8710``, or a transport of one's own; for the options see
    :class:`~kvshelf_client.options.ClientOptions`.

    Threads may share it. Every verb answers within its time budget. Unless the client is strict, none raises for what
    the service or the network does: what came to nothing is a miss, counted in :meth:`counters`. A ValueError is always
    a mistake in the call.
    """

    def __init__(self, service: str | Transport, **options: "Unpack[ClientOptions]") -> None:
        super().__init__(options)
        if isinstance(service, str):
            service = transport_module(service).connect(service, self._options)
        elif not hasattr(service, "call"):
            raise ValueError(f"a service is an address such as http://127.0.0.1:8710, got {service!r}")
        self._transport = service
        self._places = Places(self._options.max_connections)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections. Calls after that come to nothing."""
        self._transport.close()

    def register(self, name: str, spec: NamespaceSpec, *, budget_seconds: float | None = None) -> Namespace | None:
        """Make a namespace, or find that it is there already and is the same. None when it came to nothing.

        With a strict client a namespace of that name with other fields is a ServiceError of status 409, whose problem
        names the differences.
        """
        return self._run(self._register(name, spec, budget_seconds))

    def hash_tokens(
        self, namespace: Namespace, tokens: "Buffer", *, budget_seconds: float | None = None
    ) -> HashedTokens | None:
        """Let the service hash ``tokens`` (raw u32 little-endian), to prove that both hash alike."""
        return self._run(self._hash_tokens(namespace, tokens, budget_seconds))

    def plan(
        self,
        namespace: Namespace,
        *,
        tokens: "Buffer | None" = None,
        hashes: "Sequence[bytes] | Buffer | None" = None,
        prompt_tokens: int | None = None,
        request_id: str | None = None,
        budget_seconds: float | None = None,
        **options: "Unpack[PlanOptions]",
    ) -> Plan:
        """Ask how a prompt resumes. There is always a plan: a cold one without a lease when it came to nothing.

        Give either ``tokens`` (raw u32 little-endian) or ``hashes`` (32 bytes each, one by one or joined) and
        ``prompt_tokens``. Plan again under the same ``request_id`` as long as a request waits: it is counted once.
        After a load of this request has failed, its plans load nothing.
        """
        return self._run(self._plan(namespace, tokens, hashes, prompt_tokens, request_id, budget_seconds, options))

    def fetch_into(
        self, plan: Plan, destination: "Destination", *, shard: int | None = None, budget_seconds: float | None = None
    ) -> Loaded:
        """Load what a plan loads into the caller's buffers, each record checked, and say what may be run now.

        Args:
            plan: as it was answered.
            destination: the writable buffer of each :class:`~kvshelf_client.plans.Slot`, exactly as long as its record:
                a mapping, or a function, which is asked in the order of arrival. Without a buffer for a record (None,
                or no such key) that one and what follows is not loaded.
            shard: of this rank, None for all. See :meth:`~kvshelf_client.plans.Plan.settle` for several ranks.
            budget_seconds: as for all verbs.

        Raises:
            ValueError: a buffer is read-only, or of another length.
        """
        return self._run(self._fetch_into(plan, destination, shard, budget_seconds))

    def store(
        self,
        namespace: Namespace,
        records: Iterable[StoreRecord],
        *,
        ran: Resume | None = None,
        durable: bool = True,
        supersedes: bytes | None = None,
        budget_seconds: float | None = None,
    ) -> StoreResult:
        """Store records, sent from where they are; each has its outcome.

        It is never sent twice. ``ran`` is what was run; ``supersedes`` the key of the session's previous snapshot.

        Raises:
            ValueError: a field of a record, or ``supersedes``, is out of range; nothing has been sent.
        """
        return self._run(self._store(namespace, records, ran, durable, supersedes, budget_seconds))

    def touch(
        self,
        namespace: Namespace,
        record_class: RecordClass,
        keys: Iterable[bytes],
        *,
        budget_seconds: float | None = None,
    ) -> int | None:
        """Renew the life of records; returns how many were there."""
        return self._run(self._touch(namespace, record_class, keys, budget_seconds))

    def delete(
        self,
        namespace: Namespace,
        record_class: RecordClass,
        keys: Iterable[bytes],
        *,
        budget_seconds: float | None = None,
    ) -> int | None:
        """Forget records; returns how many were there."""
        return self._run(self._delete(namespace, record_class, keys, budget_seconds))

    def renew(self, plan: Plan, *, budget_seconds: float | None = None) -> bool:
        """Let a plan's lease live on from now; False when it is over, or nothing is known."""
        return self._run(self._renew(plan, budget_seconds))

    def release(self, plan: Plan, ran: Resume, *, budget_seconds: float | None = None) -> bool:
        """End a request, and say what it ran; returns whether the service has heard it.

        Where it has not, the lease ends by itself.
        """
        return self._run(self._release(plan, ran, budget_seconds))

    def stats(self, *, budget_seconds: float | None = None) -> dict[str, object] | None:
        """What the service says of itself."""
        return self._run(self._stats(budget_seconds))

    def health(self, *, budget_seconds: float | None = None) -> Health:
        """Whether the service is well; ``down`` when it does not answer."""
        return self._run(self._health(budget_seconds))

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._do)

    def _do(self, step: Try | Pause) -> Any:
        if isinstance(step, Pause):
            return sleep(step.seconds)
        self._places.take(step.deadline)
        try:
            step.begin()
            return self._transport.call(step.request, step.deadline)
        finally:
            self._places.give_back()
