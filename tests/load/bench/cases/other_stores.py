"""Peers that are measured when they can be imported: other stores of KV blocks, into memory of the caller's."""

import ctypes
import importlib
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from tests.load.bench.base import Case, Figures, NotHereError
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import BLOCK_BYTES
from tests.load.bench.stage import Stage

_START_SECONDS = 20.0


def imported(module: str, install: str) -> ModuleType:
    """A module; raises NotHereError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotHereError(f"not measured ({error}); to have it: {install}") from None


def free_port() -> int:
    """A TCP port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Store(Case):
    """A prompt's blocks, put once and got in one batch into a buffer that is registered with the store."""

    figure: ClassVar[str]

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._buffer = bytearray(b"".join(bytes(stage.payload()) for _ in range(stage.sizes.blocks)))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._addresses = [start + number * BLOCK_BYTES for number in range(stage.sizes.blocks)]
        self._keys = [f"block-{number}" for number in range(stage.sizes.blocks)]
        self._store = self.connected()
        self._store.register_buffer(start, len(self._buffer))
        self.put()

    def connected(self) -> Any:
        """The store; raises NotHereError."""
        raise NotImplementedError

    def put(self) -> None:
        """Put the blocks."""
        raise NotImplementedError

    def get(self) -> int:
        """Get them all; returns the bytes."""
        raise NotImplementedError

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {self.figure: rate_gb_s(self.get, self.stage.sizes.seconds)}


class Mooncake(_Store):
    """Mooncake Store over TCP, with a master of its own."""

    name = "mooncake"
    figure = "mooncake_get_into_gb_s"

    def connected(self) -> Any:
        """See :meth:`_Store.connected`."""
        install = "apt install libibverbs1 librdmacm1 libnuma1; pip install mooncake-transfer-engine-non-cuda"
        store = imported("mooncake.store", install).MooncakeDistributedStore()
        port, size = free_port(), 4 * len(self._buffer) + (64 << 20)
        program = shutil.which("mooncake_master", path=str(Path(sys.executable).parent)) or "mooncake_master"
        command = [program, f"--rpc_port={port}", f"--metrics_port={free_port()}"]
        master = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.stage.closing.callback(master.wait)
        self.stage.closing.callback(master.kill)
        self.stage.closing.callback(store.close)
        _wait_for(port)
        if store.setup("127.0.0.1", "P2PHANDSHAKE", size, size, "tcp", "", f"127.0.0.1:{port}"):
            raise NotHereError("not measured: it could not be set up")
        return store

    def put(self) -> None:
        """See :meth:`_Store.put`."""
        results = self._store.batch_put_from(self._keys, self._addresses, [BLOCK_BYTES] * len(self._keys))
        assert set(results) == {0}

    def get(self) -> int:
        """See :meth:`_Store.get`."""
        results = self._store.batch_get_into(self._keys, self._addresses, [BLOCK_BYTES] * len(self._keys))
        assert set(results) == {BLOCK_BYTES}
        return sum(results)


class Redhare(_Store):
    """redhare in this process, its coordination in Redis."""

    name = "redhare"
    figure = "redhare_get_into_gb_s"

    def connected(self) -> Any:
        """See :meth:`_Store.connected`."""
        module = imported("redhare", "pip install redhare")
        store = module.KvStore(
            redis_url=self.stage.redis.url,
            client_id="bench",
            data_plane_addr=f"127.0.0.1:{free_port()}",
            capacity=4 * len(self._buffer) + (64 << 20),
            transport="tcp",
        )
        self.stage.closing.callback(store.close)
        return store

    def put(self) -> None:
        """See :meth:`_Store.put`."""
        addresses, sizes = [[one] for one in self._addresses], [[BLOCK_BYTES]] * len(self._keys)
        assert set(self._store.batch_put_from_multi_buffers(self._keys, addresses, sizes)) == {0}

    def get(self) -> int:
        """See :meth:`_Store.get`."""
        addresses, sizes = [[one] for one in self._addresses], [[BLOCK_BYTES]] * len(self._keys)
        assert set(self._store.batch_get_into_multi_buffers(self._keys, addresses, sizes)) == {0}
        return len(self._buffer)


class LmCache(_Store):
    """LMCache: its server takes and gives tensors of engines alone, so it is left to its own benchmark."""

    name = "lmcache"
    figure = "lmcache_get_gb_s"

    def connected(self) -> Any:
        """See :meth:`_Store.connected`."""
        imported("lmcache.v1.server", "pip install lmcache, which brings torch (3 GB)")
        raise NotHereError("not measured here: run `lmcache bench server`, which speaks its protocol")


def _wait_for(port: int) -> None:
    """Wait until somebody listens there."""
    pause = threading.Event()
    for _ in range(int(_START_SECONDS / 0.1)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause.wait(0.1)
    raise NotHereError("not measured: its server did not start")
