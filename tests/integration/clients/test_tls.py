"""The client over TLS and with a token: the same verbs, and nobody else is believed."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kvshelf_client import AsyncClient, Client, Fault, Tls
from tests.support.certificates import Authority
from tests.support.client import Buffers
from tests.support.prompts import Prompts
from tests.support.scripted_server import answer
from tests.support.served import Served


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Served]:
    pair = authority.issue("server")
    settings = {"KVSHELF_TLS__CERT_FILE": str(pair.cert), "KVSHELF_TLS__KEY_FILE": str(pair.key)}
    made = Served(tmp_path_factory.mktemp("tls"), **settings)
    made.trust(authority.file)
    made.start()
    yield made
    made.close()


@pytest.fixture
def tls(authority: Authority) -> Tls:
    return Tls(str(authority.file))


def test_both_clients_over_tls(secure: Served, tls: Tls) -> None:
    prompts = Prompts(secure.url, count=2, blocks=20, tls=tls)
    with Client(secure.url, tls=tls, strict=True, budget_seconds=30) as client:
        plan = client.plan(prompts.namespace, tokens=prompts.tokens(0))
        buffers = Buffers(prompts.namespace)
        loaded = client.fetch_into(plan, buffers)
        assert client.release(plan, loaded.resume)
        assert prompts.is_whole(0, plan, loaded, buffers.of)

    async def fetch() -> bool:
        async with AsyncClient(secure.url, tls=tls, strict=True, budget_seconds=30) as client:
            plan = await client.plan(prompts.namespace, tokens=prompts.tokens(1))
            buffers = Buffers(prompts.namespace)
            loaded = await client.fetch_into(plan, buffers)
            await client.release(plan, loaded.resume)
            return prompts.is_whole(1, plan, loaded, buffers.of)

    assert asyncio.run(fetch())


def test_a_service_that_nobody_vouches_for_is_not_believed(secure: Served, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with Client(secure.url, tls=Tls(str(stranger.file))) as client:
        assert client.stats() is None
        assert client.counters()["stats"][Fault.UNREACHABLE.value] == 1


def test_a_service_of_another_name_is_not_believed(secure: Served, tls: Tls) -> None:
    with Client(secure.url.replace("127.0.0.1", "localhost"), tls=tls) as client:
        assert client.stats() is None


def test_a_service_that_speaks_no_tls_and_one_that_speaks_nothing_else(
    secure: Served, served: Served, tls: Tls
) -> None:
    for url in (secure.url.replace("https", "http"), served.url.replace("http", "https")):
        with Client(url, tls=tls, budget_seconds=2) as client:
            assert client.stats() is None


def test_a_client_shows_the_certificate_it_was_given(authority: Authority, tls: Tls) -> None:
    server, engine = authority.issue("server"), authority.issue("engine", "engine")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(server.cert, server.key)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(listener: socket.socket) -> str:
        with context.wrap_socket(listener.accept()[0], server_side=True) as sock:
            sock.recv(65536)
            sock.sendall(answer(b'{"a": 1}'))
            return str(sock.getpeercert())

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        shown = threads.submit(serve, listener)
        own = replace(tls, certificate_file=str(engine.cert), key_file=str(engine.key))
        with Client(f"https://127.0.0.1:{listener.getsockname()[1]}", tls=own) as client:
            assert client.stats() == {"a": 1}
        assert "engine" in shown.result(20)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Client("https://127.0.0.1:1", tls=Tls(str(tmp_path / "nothing.pem")))
