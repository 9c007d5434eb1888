"""What a service says of its tiers while it is being replayed against."""

import threading
from types import TracebackType
from typing import NamedTuple, cast

from kvshelf_client.client import Client
from storage.clock import Clock

EVERY_SECONDS = 1.0


class TierUse(NamedTuple):
    """Bytes of payloads in a tier, what they take there, and its budget; 0 where that is none, or not ours to know."""

    live_bytes: int
    used_bytes: int
    budget_bytes: int


class Sample(NamedTuple):
    """The tiers, by name, so many seconds after the start."""

    seconds: float
    tiers: dict[str, TierUse]


class Sampler:
    """Asks for the statistics once a second, in a thread, from the entry to the exit. An answer that fails is left out.

    Args:
        client: of the service; its own, so that it waits for no place among the requests.
        clock: says when each sample was taken.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self.samples: list[Sample] = []
        self._client, self._clock = client, clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._started = 0.0

    def __enter__(self) -> "Sampler":
        self._started = self._clock.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            document = self._client.stats()
            if document is not None:
                self.samples.append(Sample(self._clock.monotonic() - self._started, _tiers(document["tiers"])))
            is_over = self._over.wait(EVERY_SECONDS)


def _tiers(document: object) -> dict[str, TierUse]:
    """The part of a statistics document that is about tiers; a tenant is told its own live bytes, and no more."""
    tiers = cast("dict[str, dict[str, int]]", document)
    return {name: TierUse(*(tier.get(key, 0) for key in TierUse._fields)) for name, tier in tiers.items()}
