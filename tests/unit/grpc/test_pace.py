"""The pace of a call, and cutting a connection off among one's own."""

import asyncio
import os
import socket
from urllib.parse import quote

import pytest

from service.faces.problems import ProblemError
from service.grpc.pace import Pace, cut_off


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_one_connection_is_cut_off_and_no_other(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        clients = [socket.create_connection((host, port)) for _ in range(2)]
        accepted = [listener.accept()[0] for _ in clients]
        before = len(os.listdir("/dev/fd"))
        kind, place = ("ipv4", host) if family is socket.AF_INET else ("ipv6", quote(f"[{host}]", safe=":"))
        cut_off(f"{kind}:{place}:{clients[0].getsockname()[1]}", port + 1)
        clients[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[0].recv(1)  # It is of another service's port.
        cut_off(f"{kind}:{place}:{clients[0].getsockname()[1]}", port)
        clients[0].settimeout(5)
        assert clients[0].recv(1) == b""
        accepted[1].sendall(b"x")
        assert clients[1].recv(1) == b"x"
        assert len(os.listdir("/dev/fd")) == before, "what was looked at is closed again"
        for each in (*clients, *accepted):
            each.close()


def test_time_is_earned_by_bytes_that_move() -> None:
    async def call(moved_bytes: int) -> None:
        pace = Pace(0.5)
        for _ in range(5):
            await pace.owed(asyncio.sleep(0.15), "it")
            pace.moved(moved_bytes)

    asyncio.run(call(1024))
    with pytest.raises(ProblemError, match=r"it took longer than 0\.5 s"):
        asyncio.run(call(1))
