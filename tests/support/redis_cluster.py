"""Real Redis servers that belong together, on loopback: a cluster of masters with replicas, and a watched pair."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from storage.clock import SystemClock
from tests.support.redis_server import RedisServer, free_port, redis_binary

NODE_TIMEOUT_MS = 500
"""After this long without an answer a node counts as failed, and its replica takes over."""
_WAIT_SECONDS = 40.0


class RedisCluster:
    """Masters with one replica each. The nodes speak to each other on their port plus 10,000.

    Args:
        masters: at least 3, for else there is no majority.
        replicas: of each master, 0 or 1.
        configuration: a file that every node reads before its options.
        apart: a network of its own for the first master, which can be cut off.
    """

    def __init__(
        self,
        masters: int = 3,
        replicas: int = 1,
        apart: "NetworkApart | None" = None,
        configuration: Path | None = None,
    ) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        options += ["--cluster-require-full-coverage", "no", "--cluster-allow-reads-when-down", "no"]
        options += ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"]
        host = apart.near if apart else "127.0.0.1"
        self.servers = [
            _ClusterNode(options=options, host=apart.far, within=apart.within, configuration=configuration)
            if apart and not number
            else _ClusterNode(options=options, host=host, configuration=configuration)
            for number in range(masters * (1 + replicas))
        ]
        addresses = [f"{server.host}:{server.port}" for server in self.servers]
        self._cli("--cluster", "create", *addresses, "--cluster-replicas", str(replicas), "--cluster-yes")
        self.wait_until_whole()

    @property
    def url(self) -> str:
        """For the pool: two of the nodes are named, the others are found."""
        return f"redis+cluster://{','.join(f'{server.host}:{server.port}' for server in self.servers[:2])}"

    def masters(self) -> list[RedisServer]:
        """The servers that are masters with slots now, as the ones that answer see it."""
        ports = {port for _, _, port in self._slots()}
        return [server for server in self.servers if server.port in ports]

    def move_slots(self, source: RedisServer, target: RedisServer, slots: int) -> None:
        """Move that many slots, with what is in them."""
        ids = {server.port: self._node_id(server) for server in (source, target)}
        words = ["--cluster-from", ids[source.port], "--cluster-to", ids[target.port], "--cluster-slots", str(slots)]
        self._cli("--cluster", "reshard", f"{source.host}:{source.port}", *words, "--cluster-yes")

    def wait_until_whole(self) -> None:
        """Wait until every node that answers sees every slot served."""
        _wait(self._is_whole)

    def close(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            server.close()

    def _is_whole(self) -> bool:
        states = [state for server in self.servers if (state := _ask(server, "CLUSTER", "INFO")) is not None]
        served = sum(last - first + 1 for first, last, _ in self._slots())
        return served == 16_384 and all(b"cluster_state:ok" in state for state in states)

    def _slots(self) -> list[tuple[int, int, int]]:
        """First and last slot, and the port of the master, a range."""
        for server in self.servers:
            table = _ask(server, "CLUSTER", "SLOTS")
            if table:
                return [(row[0], row[1], row[2][1]) for row in table]
        return []

    def _node_id(self, server: RedisServer) -> str:
        answer = _ask(server, "CLUSTER", "MYID")
        assert answer is not None
        return str(answer.decode())

    def _cli(self, *words: str) -> None:
        program = redis_binary().removesuffix("-server") + "-cli"
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False)
        assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]


class NetworkApart:
    """A network namespace that is reached over a pair of virtual interfaces, and can be cut off. Takes root.

    ``near`` is this side's address, ``far`` the other's; what runs there is started by ``within``.
    """

    def __init__(self) -> None:
        # One of 64 networks by process, so that test workers do not meet.
        name, network = f"kvs{os.getpid()}", f"10.87.{os.getpid() % 64}"
        self.near, self.far = f"{network}.1", f"{network}.2"
        self.within = ["ip", "netns", "exec", name]
        self._name, self._link = name, f"kvs{os.getpid()}a"
        there = f"kvs{os.getpid()}b"
        _ip("netns", "add", name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", there, "netns", name)
        _ip("addr", "add", f"{self.near}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        _ip("-n", name, "addr", "add", f"{self.far}/30", "dev", there)
        for device in (there, "lo"):
            _ip("-n", name, "link", "set", device, "up")

    def cut(self) -> None:
        """From now on nothing passes; nobody is told."""
        _ip("link", "set", self._link, "down")

    def heal(self) -> None:
        """Let it pass again."""
        _ip("link", "set", self._link, "up")

    def close(self) -> None:
        """Take the network away; what runs there must have ended."""
        _ip("netns", "del", self._name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr} (takes root, and iproute2)"


class _ClusterNode(RedisServer):
    """On a port that leaves room for that of the cluster's own talk, 10,000 above."""

    def _pick_port(self) -> int:
        while (port := free_port()) > 55_000:
            pass
        return port


class _Sentinel(RedisServer):
    """Watches a master, and makes its replica the master when two of three Sentinels miss it."""

    def __init__(self, service: str, master_port: int) -> None:
        self._settings = (
            f"sentinel monitor {service} 127.0.0.1 {master_port} 2\n"
            f"sentinel down-after-milliseconds {service} {NODE_TIMEOUT_MS}\n"
            f"sentinel failover-timeout {service} 3000\n"
        )
        super().__init__()

    def _spawn(self, options: Sequence[str]) -> "subprocess.Popen[bytes]":
        path = self._directory / "sentinel.conf"
        path.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self._directory}\n{self._settings}")
        command = [self._binary, str(path), "--sentinel", "--logfile", f"{self._directory}/log"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class WatchedPair:
    """A master, its replica, and three Sentinels that watch them."""

    SERVICE = "pool"

    def __init__(self) -> None:
        self.master = RedisServer()
        self.replica = RedisServer(
            options=["--replicaof", f"127.0.0.1 {self.master.port}", "--repl-diskless-sync-delay", "0"]
        )
        self.sentinels = [_Sentinel(self.SERVICE, self.master.port) for _ in range(3)]
        _wait(lambda: all(self._sees_all(sentinel) for sentinel in self.sentinels))

    @property
    def url(self) -> str:
        """For the pool."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{self.SERVICE}"

    def wait_for_failover(self) -> None:
        """Wait until the Sentinels name the replica as the master, and it is one."""
        _wait(lambda: self._named() == {self.replica.port} and self._role(self.replica) == b"master")

    def close(self) -> None:
        """Stop everything."""
        for server in (*self.sentinels, self.replica, self.master):
            server.close()

    def _named(self) -> set[int]:
        answers = [_ask(one, "SENTINEL", "get-master-addr-by-name", self.SERVICE) for one in self.sentinels]
        return {int(answer[1]) for answer in answers if answer}

    def _sees_all(self, sentinel: RedisServer) -> bool:
        others, replicas = (_ask(sentinel, "SENTINEL", what, self.SERVICE) for what in ("sentinels", "replicas"))
        return len(others or ()) == 2 and len(replicas or ()) == 1 and self._role(self.replica) == b"slave"

    def _role(self, server: RedisServer) -> bytes:
        answer = _ask(server, "ROLE")
        return bytes(answer[0]) if answer else b""


def _ask(server: RedisServer, *words: str):  # type: ignore[no-untyped-def] # noqa: ANN202 - whatever Redis answers
    """What a server answers, in RESP2's own shapes; None when it does not."""
    with Redis(server.host, server.port, socket_timeout=1, socket_connect_timeout=1, protocol=2) as client:
        client.response_callbacks.clear()
        try:
            return client.execute_command(*words)
        except (RedisError, OSError):
            return None


def _wait(condition: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _WAIT_SECONDS
    while not condition():
        assert clock.monotonic() < deadline, "the servers did not come together"
        pause.wait(0.05)
