"""What a long prompt costs before a byte of KV moves: its hashes, and its plan."""

from kvshelf_client.hashing import block_keys
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import cpu_seconds, milliseconds
from tests.load.bench.sizes import BLOCK_TOKENS
from tests.load.bench.stage import Stage

_REPEATS = 5


class PlanMillion(Case):
    """A prompt of a million tokens, all of whose blocks are there: the server's processor time for its plan."""

    name = "plan_1m"
    costs = ("plan_1m_tokens_ms",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service("small", bytes_per_token=8)
        self._blocks = stage.sizes.prompt_tokens // BLOCK_TOKENS
        self._tokens = stage.prompt(self._blocks)
        self._service.client.store(self._service.namespace, stage.records(self._service, self._tokens), durable=False)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {"plan_1m_tokens_ms": self._plan_ms(_REPEATS)}

    def _plan_ms(self, repeats: int) -> float:
        spent = 0.0
        for _ in range(repeats):
            before = cpu_seconds(self._service.pid)
            plan = self._service.client.plan(self._service.namespace, tokens=self._tokens)
            spent += cpu_seconds(self._service.pid) - before
            assert plan.hit_tokens == self._blocks * BLOCK_TOKENS
            self._service.client.release(plan, plan.resume)
        return spent / repeats * 1000


class HashMillion(Case):
    """The block keys of a million tokens in the client's process."""

    name = "hash_1m"
    costs = ("hash_1m_tokens_ms",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._tokens = stage.prompt(stage.sizes.prompt_tokens // BLOCK_TOKENS)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        seconds = self.stage.sizes.seconds / 2
        return {"hash_1m_tokens_ms": milliseconds(lambda: block_keys(bytes(32), self._tokens, BLOCK_TOKENS), seconds)}
