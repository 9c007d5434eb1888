"""The pool's configuration: accepted by a real server, bounded, and closed to all but what the service needs."""

import hashlib
import subprocess
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from storage.base import WriteOutcome
from storage.clock import SystemClock
from storage.dram import RedisTier
from tests.support.certificates import Authority
from tests.support.deployed import DEPLOY
from tests.support.records import fetch, make_id, make_record, make_records
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer, free_port

CONFIGURATION = DEPLOY / "redis"


def configured(*options: str) -> RedisServer:
    return RedisServer(configuration=CONFIGURATION / "pool.conf", options=options)


def test_a_server_takes_the_configuration_and_is_a_pool() -> None:
    share = subprocess.run([CONFIGURATION / "maxmemory.sh"], capture_output=True, text=True, check=True).stdout
    server = configured("--maxmemory", share.strip())
    with server.client() as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-ttl"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert int(client.config_get("maxmemory")["maxmemory"]) == int(share)
    server.close()


def test_a_tenth_of_the_memory_is_the_pools() -> None:
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    script = str(CONFIGURATION / "maxmemory.sh")
    tenth, half = (int(subprocess.check_output([script, share])) for share in ("10", "50"))
    assert 0 < tenth <= total * 1024 // 10
    assert half // 50 == tenth // 10
    for wrong in ("0", "91", "ten", "-1"):
        refused = subprocess.run([script, wrong], capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "usage" in refused.stderr


def test_the_service_may_do_what_it_does_and_nothing_else(tmp_path: Path) -> None:
    rules = (CONFIGURATION / "users.acl").read_text().splitlines()
    digest = hashlib.sha256(b"pool-secret").hexdigest()
    lines = [line.replace("0" * 64, digest) for line in rules if line and not line.startswith("#")]
    (tmp_path / "users.acl").write_text("\n".join(lines) + "\n")
    server = RedisServer(
        configuration=CONFIGURATION / "pool.conf",
        options=["--aclfile", str(tmp_path / "users.acl")],
        user="operator",
        password="pool-secret",
    )
    tier = RedisTier(
        url=f"redis://kvshelf:pool-secret@127.0.0.1:{server.port}/0", clock=SystemClock(), ttl_seconds=60, part_bytes=64
    )
    try:
        records = [make_record(number, size=size) for number, size in enumerate((10, 1000))]
        assert [one.outcome for one in tier.write(records, durable=True)] == [WriteOutcome.STORED] * 2
        assert fetch(tier, [record.id for record in records]) == [record.payload for record in records]
        tier.maintain()
        tier.check_integrity()
        assert tier.usage().used_bytes > 0
        assert len(tier.scan(b"").entries) == 2
        assert tier.touch([make_id(0)]) == 1
        assert tier.delete([make_id(0), make_id(1)]) == 2
        assert tier.trouble() is None
        with Redis(port=server.port, username="kvshelf", password="pool-secret", protocol=2) as client:
            for command in ("FLUSHALL", "KEYS *", "CONFIG GET *", "EVAL 1 0", "SET other 1", "GET other"):
                with pytest.raises(NoPermissionError):
                    client.execute_command(*command.split())
        with Redis(port=server.port, protocol=2) as nobody, pytest.raises(RedisError):
            nobody.execute_command("GET", "x")
    finally:
        tier.close()
        server.close()


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    text = (CONFIGURATION / "tls.conf").read_text().replace("port 0", "")
    for place, here in (("server.pem", pair.cert), ("server.key", pair.key), ("ca.pem", authority.file)):
        text = text.replace(f"/etc/redis/tls/{place}", str(here))
    both = tmp_path / "both.conf"
    both.write_text((CONFIGURATION / "pool.conf").read_text() + text.replace("tls-port 6379", ""))
    plain = RedisServer(configuration=both)
    with plain.client() as client:
        tls_port = free_port()
        client.config_set("tls-port", tls_port)
    tier = RedisTier(
        url=f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={authority.file}", clock=SystemClock(), ttl_seconds=60,
        timeout_seconds=2,
    )  # fmt: skip
    assert tier.write(make_records([1]), durable=True)[0].outcome is WriteOutcome.STORED
    assert fetch(tier, [make_id(1)]) == [make_record(1).payload]
    tier.close()
    stranger = RedisTier(url=f"rediss://127.0.0.1:{tls_port}/0", clock=SystemClock(), ttl_seconds=60, timeout_seconds=2)
    assert stranger.write(make_records([1]), durable=True)[0].outcome is WriteOutcome.TIER_DOWN
    stranger.close()
    plain.close()


def test_nodes_take_the_configuration_of_a_cluster() -> None:
    cluster = RedisCluster(replicas=0, configuration=CONFIGURATION / "cluster.conf")
    with cluster.servers[0].client() as client:
        assert client.config_get("cluster-require-full-coverage") == {"cluster-require-full-coverage": "no"}
    cluster.close()
