"""How commands to Redis are packed."""

import pytest
from redis.connection import PythonRespSerializer

from storage.clock import SystemClock
from storage.dram.link import Command, RedisLink, pack
from storage.dram.place import pool_place

BIG = bytes(range(256)) * 64


@pytest.mark.parametrize(
    "commands",
    [
        [(b"PING",)],
        [(b"GETRANGE", b"key", 0, 151), (b"PTTL", b"key")],
        [(b"SET", b"key", b"", b"PX", 600_000, b"NX")],
        [(b"SET", b"\r\n$3\r\n", BIG)],
        [],
    ],
)
def test_it_is_packed_as_redis_py_does(commands: list[Command]) -> None:
    serializer = PythonRespSerializer(6000, lambda one: one if isinstance(one, bytes) else str(one).encode())
    expected = b"".join(b"".join(serializer.pack(*command)) for command in commands)
    assert b"".join(pack(commands)) == expected


@pytest.mark.parametrize(
    "pieces", [(b"head", BIG), (b"head", memoryview(BIG)[1:]), (b"head",), (b"", b""), (BIG, b"x")]
)
def test_the_pieces_of_an_argument_are_one_string(pieces: tuple[bytes | memoryview, ...]) -> None:
    whole = b"".join(pieces)
    assert b"".join(pack([(b"SET", b"k", pieces, b"NX")])) == b"".join(pack([(b"SET", b"k", whole, b"NX")]))


def test_large_pieces_are_sent_as_they_are() -> None:
    payload = bytearray(BIG)
    buffers = pack([(b"SET", b"a", (b"head", payload)), (b"SET", b"b", (b"head", payload)), (b"PING",)])
    assert [one is payload for one in buffers] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://user:pw@example.org:7000/3", "example.org:7000"),
        ("rediss://:pw@example.org?ssl_cert_reqs=required", "example.org:6379"),
        ("unix://:pw@/run/redis.sock?db=2", "/run/redis.sock"),
        ("redis://", "localhost:6379"),
    ],
)
def test_where_it_is_shows_no_credentials(url: str, where: str) -> None:
    link = RedisLink(
        pool_place(url), clock=SystemClock(), timeout_seconds=0.1, max_connections=1, on_fault=lambda kind: None
    )
    assert link.where == where
    assert repr(link) == f"RedisLink({where})"
    assert "pw" not in repr(link._pool.connection_kwargs)
    link.close()
    link.close()
    with pytest.raises(ValueError):
        link.ask([(b"PING",)])
