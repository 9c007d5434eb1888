"""Peer: the same blocks as plain values in a Redis, read with redis-py and hiredis."""

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.stage import Stage

_SMALL_BATCH = 8


class RedisMget(Case):
    """``MGET`` of all of a prompt's blocks at a time, and of 8 at a time."""

    name = "redis_py"

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._client = stage.closing.enter_context(stage.redis.client())
        self._keys = [b"bench:%d" % number for number in range(stage.sizes.blocks)]
        for key in self._keys:
            self._client.set(key, bytes(stage.payload()))

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        seconds = self.stage.sizes.seconds
        whole = rate_gb_s(lambda: self._read(len(self._keys)), seconds)
        small = rate_gb_s(lambda: self._read(_SMALL_BATCH), seconds)
        return {"redis_mget256_gb_s": whole, "redis_mget8_gb_s": small, "redis_best_gb_s": max(whole, small)}

    def _read(self, batch: int) -> int:
        moved = 0
        for start in range(0, len(self._keys), batch):
            values = self._client.mget(self._keys[start : start + batch])
            moved += sum(len(value) for value in values if value is not None)
        return moved
