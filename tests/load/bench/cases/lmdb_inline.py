"""Peer: the same blocks as values inside one LMDB, read cold: what a store without segment files would do."""

import os

import lmdb

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.stage import Stage


class LmdbInline(Case):
    """Prompts whose blocks lie among those of the others, read in turns into a buffer, with the page cache dropped."""

    name = "lmdb_inline"

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._path, self._next = stage.directory / "inline", 0
        self._target = memoryview(bytearray(stage.sizes.prompt_bytes))
        with self._environment() as environment:
            for block in range(stage.sizes.blocks):
                with environment.begin(write=True) as txn:
                    for prompt in range(stage.sizes.cold_prompts):
                        txn.put(self._key(prompt, block), stage.payload())
            environment.sync(True)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {"lmdb_inline_cold_gb_s": rate_gb_s(self._read, self.stage.sizes.seconds, before=self._drop)}

    def _drop(self) -> None:
        descriptor = os.open(self._path / "data.mdb", os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

    def _read(self) -> int:
        at = 0
        with self._environment() as environment, environment.begin(buffers=True) as txn:
            for block in range(self.stage.sizes.blocks):
                value = txn.get(self._key(self._next, block))
                assert value is not None
                self._target[at : at + len(value)] = value
                at += len(value)
        self._next = (self._next + 1) % self.stage.sizes.cold_prompts
        return at

    def _environment(self) -> "lmdb.Environment":
        size = 4 * self.stage.sizes.cold_prompts * self.stage.sizes.prompt_bytes + (64 << 20)
        return lmdb.open(str(self._path), map_size=size, readahead=False, sync=False)

    @staticmethod
    def _key(prompt: int, block: int) -> bytes:
        return prompt.to_bytes(8, "big") + block.to_bytes(24, "big")
