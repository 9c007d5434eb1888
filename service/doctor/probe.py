"""Try a service on the spot: one small request, from its plan to its release, in a namespace of its own."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError, ServiceError
from kvshelf_client.frames import checksum_of
from kvshelf_client.hashing import block_keys
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.words import Provenance, RecordClass
from service.overview.finding import Finding
from storage.clock import Clock

T = TypeVar("T")

BLOCKS = 4
SLOW_SECONDS = 0.5
_BLOCK_TOKENS = 16
_PROFILE = "llama-3-8b/bf16"


class Step(NamedTuple):
    """One step that was tried, and the seconds it took."""

    name: str
    seconds: float


class ProbeDeniedError(Exception):
    """The token may not do what the probe does: that says nothing of the service. ``status`` is 401 or 403."""

    def __init__(self, error: ServiceError) -> None:
        self.status = error.status
        super().__init__(str(error.problem.get("detail") or error))


class Probe:
    """Asks as an engine does, and looks whether what comes back is what went in.

    Args:
        client: strict, of the service.
        clock: times the steps.
        name: of the namespace that is made for it; whoever made the probe removes it.
        tenant: whose it is; None for the token's.
        first_token: what the prompt starts with, below 2**31: a prompt that was stored before proves nothing.
    """

    def __init__(self, client: Client, clock: Clock, name: str, tenant: str | None, first_token: int) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._tenant = tenant
        self._first_token = first_token
        self._stored: tuple[Namespace, list[bytes]] | None = None
        self.steps: list[Step] = []

    @property
    def has_namespace(self) -> bool:
        """Whether the namespace was made, or was there."""
        return len(self.steps) > 1

    def run(self) -> list[Finding]:
        """Try everything; what went wrong, or was slow. The first step that fails is the last.

        Raises:
            ProbeDeniedError: see there.
        """
        try:
            wrong = self._try_all()
        except KvshelfError as error:
            if isinstance(error, ServiceError) and error.status in (401, 403):
                raise ProbeDeniedError(error) from None
            failed = self.steps[-1].name
            return [
                Finding(
                    "bad", "service", f"A live {failed} fails", str(error), "What fails here fails for engines, too."
                )
            ]
        slow = [step for step in self.steps if step.seconds > SLOW_SECONDS]
        return wrong + [
            Finding(
                "look",
                "service",
                f"A live {step.name} is slow",
                f"{step.seconds:.2f} s for {BLOCKS} small blocks.",
                "See the latency of tiers, and what else the machine does.",
            )
            for step in slow
        ]

    def delete_stored(self) -> None:
        """Delete the records; for a token that may not erase the namespace. Raises KvshelfError."""
        if self._stored is not None:
            namespace, keys = self._stored
            self._client.delete(namespace, RecordClass.BLOCK, keys)

    def _try_all(self) -> list[Finding]:
        spec = NamespaceSpec(
            tenant=self._tenant,
            model="doctor",
            weights_revision="1",
            profile=_PROFILE,
            block_tokens=_BLOCK_TOKENS,
            bytes_per_token=64,
        )
        namespace = self._timed("register", lambda: self._client.register(self._name, spec))
        if namespace is None:
            raise KvshelfError("the service did not say what was registered")
        numbers = range(self._first_token, self._first_token + BLOCKS * _BLOCK_TOKENS + 1)
        tokens = b"".join(number.to_bytes(4, "little") for number in numbers)
        keys = block_keys(namespace.fingerprint, tokens, _BLOCK_TOKENS)
        hashed = self._timed("hash", lambda: self._client.hash_tokens(namespace, tokens))
        if hashed is None or list(hashed.keys) != list(keys):
            return [_broken("It hashes otherwise than this client", "The keys of one prompt differ.", "Update one.")]
        payloads = [bytes([number]) * namespace.block_bytes for number in range(BLOCKS)]
        records = [
            StoreRecord(RecordClass.BLOCK, key, (at + 1) * _BLOCK_TOKENS, payload, Provenance.EXACT)
            for at, (key, payload) in enumerate(zip(keys, payloads, strict=True))
        ]
        self._stored = namespace, keys
        self._timed("store", lambda: self._client.store(namespace, records))
        plan = self._timed("plan", lambda: self._client.plan(namespace, tokens=tokens))
        places = [bytearray(namespace.block_bytes) for _ in range(BLOCKS)]
        self._timed(
            "fetch", lambda: self._client.fetch_into(plan, lambda slot: places[slot.end_tokens // _BLOCK_TOKENS - 1])
        )
        self._timed("release", lambda: self._client.release(plan, plan.resume))
        if [checksum_of(place) for place in places] != [checksum_of(payload) for payload in payloads]:
            evidence = f"{plan.hit_tokens} of {BLOCKS * _BLOCK_TOKENS} tokens hit."
            return [_broken("What was stored does not come back", evidence, "See health, and the service's log.")]
        return []

    def _timed(self, name: str, call: Callable[[], T]) -> T:
        """Do one step; it is on the list even when it fails."""
        started = self._clock.monotonic()
        self.steps.append(Step(name, 0.0))
        try:
            return call()
        finally:
            self.steps[-1] = Step(name, self._clock.monotonic() - started)


def _broken(title: str, evidence: str, advice: str) -> Finding:
    return Finding("bad", "service", title, evidence, advice)
