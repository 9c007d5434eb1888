"""Which hosts a request without a token may name."""

import pytest

from service.access.hosts import AllowedHosts, is_loopback

HERE = ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"]
ELSEWHERE = ["0.0.0.0", "10.0.0.1", "::", "fe80::1", "example.com", "localhost.example.com", "127.0.0.1.nip.io", ""]


@pytest.mark.parametrize("host", HERE)
def test_loopback_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_nothing_else_is(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        (None, True),
        ("127.0.0.1", True),
        ("127.0.0.1:8710", True),
        ("LOCALHOST:1", True),
        ("[::1]", True),
        ("[::1]:8710", True),
        ("proxy.internal", True),
        ("Proxy.Internal:80", True),
        ("", False),
        ("evil.example", False),
        ("evil.example:8710", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("evil.example#127.0.0.1", False),
        ("[::1", False),
        ("::1", False),
        ("other.internal", False),
        ("x.proxy.internal", False),
    ],
)
def test_hosts(host: str | None, is_allowed: bool) -> None:
    hosts = AllowedHosts(["PROXY.internal"])
    assert [hosts.allow(host, None) for _ in range(2)] == [is_allowed] * 2, "known by then, and judged alike"


def test_as_many_hosts_as_anybody_likes_to_name() -> None:
    hosts = AllowedHosts(["proxy.internal"])
    for number in range(1000):
        assert not hosts.allow(f"evil-{number}.example", None)
        assert hosts.allow(f"127.0.{number % 250}.1:{number}", f"http://proxy.internal:{number}")
    assert not hosts.allow("1" * 100_000 + ".example", None)
    assert not hosts.allow("127.0.0.1:" + "0" * 1000 + "1", None), "no URL is as long as that"


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        (None, True),
        ("http://127.0.0.1:8710", True),
        ("https://localhost", True),
        ("http://proxy.internal", True),
        ("null", False),
        ("", False),
        ("http://evil.example", False),
        ("http://localhost.evil.example:8710", False),
        ("http://[::1", False),
    ],
)
def test_origins(origin: str | None, is_allowed: bool) -> None:
    assert AllowedHosts(["proxy.internal"]).allow("127.0.0.1:8710", origin) is is_allowed
