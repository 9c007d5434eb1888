"""The cases, one a module, in the order in which they are measured."""

from tests.load.bench.base import Case
from tests.load.bench.cases.churn import Churn
from tests.load.bench.cases.client_overhead import ClientOverhead
from tests.load.bench.cases.cold_fetch import ColdFetch
from tests.load.bench.cases.disk import DiskRandom, DiskSequential, DiskWrite
from tests.load.bench.cases.encryption import Encryption
from tests.load.bench.cases.grpc_fetch import GrpcFetch
from tests.load.bench.cases.http_fetch import HttpFetch
from tests.load.bench.cases.http_store import DurableStore, HttpStore
from tests.load.bench.cases.lmdb_inline import LmdbInline
from tests.load.bench.cases.local_path import LocalCopy, LocalFetch, LocalLease, LocalVerify
from tests.load.bench.cases.many_clients import ManyClients, ServerMemory
from tests.load.bench.cases.memory_copy import MemoryCopy
from tests.load.bench.cases.other_stores import LmCache, Mooncake, Redhare
from tests.load.bench.cases.plans import HashMillion, PlanMillion
from tests.load.bench.cases.redis_py import RedisMget
from tests.load.bench.cases.snapshot_fetch import SnapshotFetch
from tests.load.bench.cases.sockets import LoopbackTcp, SnapshotTcp, UnixSocket

REFERENCES: tuple[type[Case], ...] = (
    MemoryCopy,
    LoopbackTcp,
    SnapshotTcp,
    UnixSocket,
    DiskRandom,
    DiskSequential,
    DiskWrite,
)
PEERS: tuple[type[Case], ...] = (RedisMget, LmdbInline, Mooncake, Redhare, LmCache)
OWN: tuple[type[Case], ...] = (
    HttpFetch,
    ClientOverhead,
    GrpcFetch,
    LocalLease,
    LocalCopy,
    LocalVerify,
    LocalFetch,
    HttpStore,
    ColdFetch,
    DurableStore,
    Churn,
    Encryption,
    SnapshotFetch,
    PlanMillion,
    HashMillion,
    ManyClients,
    ServerMemory,
)
CASES = REFERENCES + PEERS + OWN
