"""TLS: who may connect, with what, and that a certificate is renewed while the service runs."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import TlsSettings
from service.tls import ServerTls, TlsError
from storage.clock import SystemClock
from tests.support.certificates import Authority, Pair
from tests.support.served import Served, eventually, kvshelf


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


def settings_of(pair: Pair, client_ca: Path | None = None) -> TlsSettings:
    return TlsSettings(cert_file=pair.cert, key_file=pair.key, client_ca_file=client_ca)


def variables_of(pair: Pair) -> dict[str, str]:
    return {"KVSHELF_TLS__CERT_FILE": str(pair.cert), "KVSHELF_TLS__KEY_FILE": str(pair.key)}


@pytest.fixture
def served(tmp_path: Path, authority: Authority, pair: Pair) -> Iterator[Served]:
    server = Served(tmp_path, **variables_of(pair))
    server.trust(authority.file)
    yield server
    server.close()


def serial_of(served: Served, authority: Authority) -> int:
    """The serial number of the certificate a new connection is shown."""
    host, _, port = served.url.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=str(authority.file))
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
        shown = tls.getpeercert()
    assert shown
    return int(str(shown["serialNumber"]), 16)


def test_it_serves_over_tls_and_takes_a_renewed_certificate_over(
    served: Served, authority: Authority, pair: Pair
) -> None:
    served.start()
    assert served.url.startswith("https://127.0.0.1:")
    assert served.http.get("/healthz").json()["status"] == "ok"
    first = serial_of(served, authority)
    # Between the two writes of a renewal the files do not fit.
    whole = pair.cert.read_bytes(), pair.key.read_bytes()
    authority.issue("server")
    renewed = pair.key.read_bytes()
    pair.key.write_bytes(whole[1])
    eventually(lambda: [line for line in served.log() if line["event"] == "certificate_unusable"], 10)
    assert serial_of(served, authority) == first
    pair.key.write_bytes(renewed)
    eventually(lambda: serial_of(served, authority) != first, 10)
    assert served.http.get("/healthz").status_code == 200, "what was connected before goes on"
    started = SystemClock().monotonic()
    assert served.stop() == 0
    assert SystemClock().monotonic() - started < 8, "an idle client is not waited for"
    events = [line["event"] for line in served.log() if line["event"].startswith("certificate")]
    assert events == ["certificate_unusable", "certificate_renewed"]


def test_plain_http_and_strangers_get_nowhere(served: Served, authority: Authority, tmp_path: Path) -> None:
    served.start()
    host, _, port = served.url.removeprefix("https://").partition(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ssl.SSLCertVerificationError):
        serial_of(served, Authority(other))
    assert serial_of(served, authority)


def test_a_start_with_unusable_files_is_refused_in_one_line(tmp_path: Path, pair: Pair) -> None:
    pair.key.write_bytes(b"")
    ended = kvshelf("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), **variables_of(pair))
    assert ended.returncode == 1
    assert ended.stderr.startswith("kvshelf serve: tls.cert_file")
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Let the two connect in memory; returns the version they agreed on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        for end in ends:
            try:
                end.do_handshake()
                end.read(1)
            except ssl.SSLWantReadError:
                pass
    return str(ends[0].version())


def client_of(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_nothing_older_than_tls_1_2(authority: Authority, pair: Pair, version: ssl.TLSVersion, is_taken: bool) -> None:
    client = client_of(authority)
    client.set_ciphers("DEFAULT@SECLEVEL=0")
    client.minimum_version = client.maximum_version = version
    server = ServerTls(settings_of(pair)).context
    if is_taken:
        assert handshake(server, client) == version.name.replace("_", ".")
    else:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
            handshake(server, client)


def test_with_authorities_of_clients_only_theirs_connect(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    clients = Authority(tmp_path / "clients")
    server = ServerTls(settings_of(pair, clients.file)).context
    mine = clients.issue("engine", "engine.example")
    known = client_of(authority)
    known.load_cert_chain(mine.cert, mine.key)
    assert handshake(server, known) == "TLSv1.3"
    stranger = client_of(authority)
    stranger.load_cert_chain(pair.cert, pair.key)
    for client in (client_of(authority), stranger):
        with pytest.raises(ssl.SSLError):
            handshake(server, client)


def test_authorities_of_clients_are_renewed_too(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    clients = Authority(tmp_path / "clients")
    mine = clients.issue("engine", "engine.example")
    known = client_of(authority)
    known.load_cert_chain(mine.cert, mine.key)
    tls = ServerTls(settings_of(pair, clients.file))
    handshake(tls.context, known)
    clients.file.write_bytes(authority.file.read_bytes())
    handshake(tls.context, known)
    tls.refresh()
    with pytest.raises(ssl.SSLError):
        handshake(tls.context, known)


@pytest.mark.parametrize("damage", ["no cert", "no key", "not theirs", "passphrase", "no authority", "empty authority"])
def test_what_cannot_be_used_is_named(authority: Authority, pair: Pair, tmp_path: Path, damage: str) -> None:
    client_ca: Path | None = None
    if damage == "no cert":
        pair.cert.unlink()
    elif damage == "no key":
        pair.key.unlink()
    elif damage == "not theirs":
        pair.key.write_bytes(authority.issue("other").key.read_bytes())
    elif damage == "passphrase":
        pair.key.write_text(ENCRYPTED_KEY)
    else:
        client_ca = tmp_path / "authority"
        if damage == "empty authority":
            client_ca.write_bytes(b"")
    with pytest.raises(TlsError, match=str(client_ca or tmp_path)):
        ServerTls(settings_of(pair, client_ca))


ENCRYPTED_KEY = """-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgqpT4bZJu0nQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEDxVwbIUgcDNkTlJEHeZM5kEgZBP
-----END ENCRYPTED PRIVATE KEY-----
"""
