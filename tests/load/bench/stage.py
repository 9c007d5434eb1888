"""Where the cases play: a directory on the disk under test, services, Redis, and bytes that do not compress."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kvshelf_client import Client, NamespaceSpec, Plan, StoreRecord
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance, RecordClass
from service.cli.child import ServerProcess
from tests.load.bench.sizes import BLOCK_BYTES, BLOCK_TOKENS, MIB, PROFILE, Sizes
from tests.support.client import Buffers, loaded_bytes, registered
from tests.support.redis_server import RedisServer

_POOL_BYTES = 64 << 20
_NAMESPACE = "bench"


class Service:
    """A running ``kvshelf serve``, a client of it, and the namespace of its records.

    Args:
        process: the server.
        data_dir: its data directory.
        bytes_per_token: shrinks the records of the namespace; None for their real size.
        memory_bytes: what it is configured to keep payloads in.
    """

    def __init__(self, process: ServerProcess, data_dir: Path, bytes_per_token: int | None, memory_bytes: int) -> None:
        self.data_dir, self.memory_bytes = data_dir, memory_bytes
        self.url, self.pid = process.url, process.process.pid
        self.grpc_url = process.said.rpartition("gRPC: ")[2]
        self.client = Client(self.url, strict=True, budget_seconds=120, local=False)
        spec = NamespaceSpec("bench", "model", "1", PROFILE, BLOCK_TOKENS, bytes_per_token)
        self.namespace = registered(self.client, _NAMESPACE, spec)
        self._buffers = Buffers(self.namespace)

    @contextmanager
    def leased(self, tokens: bytes, *, hbm_tokens: int = 0) -> Iterator[Plan]:
        """A plan of all that is there of a prompt; one block and more behind it is not."""
        plan = self.client.plan(self.namespace, tokens=tokens + bytes(2 * BLOCK_TOKENS * 4), hbm_tokens=hbm_tokens)
        yield plan
        self.client.release(plan, plan.resume)

    def fetch(self, plan: Plan) -> int:
        """Fetch what a plan loads, checked, into buffers that are there already; returns the payload bytes."""
        return loaded_bytes(self.client.fetch_into(plan, self._buffers), self.namespace)

    def keys(self, tokens: bytes) -> list[bytes]:
        """The block keys of a prompt."""
        return block_keys(self.namespace.fingerprint, tokens, BLOCK_TOKENS)


class Stage:
    """What the cases share. Close it.

    Args:
        sizes: how much is moved.
        parent: where its directory is made: on the disk that is to be measured.
    """

    def __init__(self, sizes: Sizes, parent: Path | None = None) -> None:
        self.sizes = sizes
        self.closing = ExitStack()
        self.directory = Path(self.closing.enter_context(tempfile.TemporaryDirectory("-kvshelf-bench", dir=parent)))
        self.random = random.Random(0)
        self._bytes = memoryview(os.urandom(_POOL_BYTES))
        self._services: dict[str, Service] = {}
        self._redis: RedisServer | None = None

    @property
    def redis(self) -> RedisServer:
        """A Redis of the benchmark's own; made when it is first asked for."""
        if self._redis is None:
            self._redis = RedisServer()
            self.closing.callback(self._redis.close)
        return self._redis

    def service(
        self, name: str = "main", *, bytes_per_token: int | None = None, memory_bytes: int = 512 * MIB
    ) -> Service:
        """The service of that name; made when it is first asked for, with its pool in Redis."""
        if name not in self._services:
            data_dir = self.directory / name
            environment = {
                "KVSHELF_STORE__BUDGET_BYTES": str(self.sizes.budget_bytes),
                "KVSHELF_STORE__MEMORY_BYTES": str(memory_bytes),
            }
            options = ["--port", "0", "--grpc-port", "0", "--data-dir", str(data_dir), "--redis-url", self.redis.url]
            log = self.closing.enter_context((self.directory / f"{name}.log").open("wb"))
            process = self.closing.enter_context(ServerProcess(options, environment=environment, stderr=log))
            self._services[name] = Service(process, data_dir, bytes_per_token, memory_bytes)
            self.closing.callback(self._services[name].client.close)
        return self._services[name]

    def payload(self, size_bytes: int = BLOCK_BYTES) -> memoryview:
        """Bytes from a place of their own in a pool of random ones."""
        start = self.random.randrange(len(self._bytes) - size_bytes)
        return self._bytes[start : start + size_bytes]

    def prompt(self, blocks: int) -> bytes:
        """A new prompt: raw u32 tokens."""
        return self.random.randbytes(blocks * BLOCK_TOKENS * 4)

    def records(self, service: Service, tokens: bytes) -> list[StoreRecord]:
        """The blocks of a prompt, to be stored."""
        size = service.namespace.block_bytes
        return [
            StoreRecord(RecordClass.BLOCK, key, (index + 1) * BLOCK_TOKENS, self.payload(size), Provenance.EXACT)
            for index, key in enumerate(service.keys(tokens))
        ]

    def close(self) -> None:
        """Stop everything and remove the directory."""
        self.closing.close()
