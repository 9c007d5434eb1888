"""Reference: what one thread copies from memory to memory."""

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.stage import Stage


class MemoryCopy(Case):
    """A prompt's bytes, block by block, into a buffer that was touched before."""

    name = "memcpy"

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._sources = [stage.payload() for _ in range(stage.sizes.blocks)]
        self._target = memoryview(bytearray(b"\1") * stage.sizes.prompt_bytes)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {"memcpy_gb_s": rate_gb_s(self._copy, self.stage.sizes.seconds / 2)}

    def _copy(self) -> int:
        at = 0
        for source in self._sources:
            self._target[at : at + len(source)] = source
            at += len(source)
        return at
