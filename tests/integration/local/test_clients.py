"""Clients of all sorts: who is let in, what ends a conversation, and that none of them costs the service anything."""

import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvshelf_client.local.address import short_path
from kvshelf_client.local.channel import Channel
from kvshelf_client.local.peer import RefusedError, greet
from kvshelf_client.local.wire import (
    HEADER_BYTES,
    MAX_REQUEST_BYTES,
    Kind,
    Refusal,
    pack_header,
    pack_hello,
    pack_renew,
    unpack_refusal,
)
from kvshelf_client.words import RecordClass
from service.local import conversation
from service.local.listener import listening
from tests.integration.local.conftest import open_files
from tests.support.local import MAX_PAYLOAD_BYTES, LocalFace, do, local_face, soon
from tests.support.served import eventually
from tests.support.service import register
from tests.support.shelf import BLOCK, fill, plan


def answer_to(sock: socket.socket) -> tuple[Refusal, str] | None:
    """The refusal that comes, None when the face hangs up without a word."""
    channel = Channel(sock, takes_descriptors=True)
    try:
        header, _ = do(channel.receive_header(soon()))
    except ConnectionError:
        return None
    assert header.kind is Kind.REFUSED
    return unpack_refusal(do(channel.read_body(header, 4096, soon())))


def has_ended(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def hello(face: LocalFace) -> bytes:
    body = pack_hello(face.server.instance, None)
    return pack_header(Kind.HELLO, len(body)) + body


def is_well(face: LocalFace) -> bool:
    """Whether the face welcomes clients."""
    with face.peer():
        return True


def test_the_socket_is_for_this_user_alone(face: LocalFace) -> None:
    status = face.server.path.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert face.server.path == face.parts.settings.store.data_dir / "local.sock"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (lambda face: b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Refusal.MALFORMED),
        (lambda face: b"\0" * 64, Refusal.MALFORMED),
        (lambda face: pack_header(Kind.OPEN, 0), Refusal.MALFORMED),
        (lambda face: pack_header(Kind.HELLO, 3) + b"abc", Refusal.MALFORMED),
        (lambda face: pack_header(Kind.HELLO, MAX_REQUEST_BYTES + 1), Refusal.MALFORMED),
        (lambda face: pack_header(Kind.HELLO, 1 << 63), Refusal.MALFORMED),
        (lambda face: pack_header(Kind.HELLO, 17) + face.server.instance + b"\xff", Refusal.MALFORMED),
        (lambda face: struct.pack("<4sBBHQ", b"KVSL", 2, 1, 0, 16) + b"x" * 16, Refusal.VERSION),
        (lambda face: pack_header(Kind.HELLO, 16) + b"x" * 16, Refusal.INSTANCE),
        (lambda face: hello(face) + struct.pack("<4sBBHQ", b"KVSL", 1, 99, 0, 0), Refusal.MALFORMED),
        (lambda face: hello(face) + hello(face), Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.OPEN, 3) + b"abc", Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.OPEN, 9) + b"\xfe\xff\xff\xff\0\0\0\0x", Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.OPEN, 9) + b"\0\0\0\0\2\0\0\0x", Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.READ, 11) + b"x" * 11, Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.RENEW, 1) + b"\xff", Refusal.MALFORMED),
        (lambda face: hello(face) + pack_header(Kind.WELCOME, 0), Refusal.MALFORMED),
    ],
)
def test_what_is_no_message_ends_the_conversation(
    face: LocalFace, sent: Callable[[LocalFace], bytes], reason: Refusal
) -> None:
    with face.connect() as sock:
        data = sent(face)
        sock.sendall(data)
        if data.startswith(hello(face)):
            assert len(sock.recv(HEADER_BYTES + 16, socket.MSG_WAITALL)) == HEADER_BYTES + 16
        refused = answer_to(sock)
        assert refused is not None
        assert refused[0] is reason
        assert refused[1]
        assert eventually(lambda: has_ended(sock), within_seconds=5)
    assert is_well(face)


def test_half_a_message_is_not_waited_for_long(face: LocalFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "STEP_SECONDS", 0.2)
    for part in (b"KV", hello(face)[:-3], hello(face) + pack_header(Kind.RENEW, 8)):
        with face.connect() as sock:
            sock.sendall(part)
            while sock.recv(64):
                pass
    assert is_well(face)


def test_who_says_nothing_is_let_go_in_the_end(face: LocalFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "IDLE_SECONDS", 0.1)
    with face.peer() as peer:
        assert eventually(lambda: not peer.channel.is_quiet, within_seconds=10)


def test_another_service_is_not_taken_for_this_one(face: LocalFace, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with local_face(tmp_path / "other") as other:
        wrong = face.address._replace(instance=other.server.instance)
        with pytest.raises(RefusedError) as refused:
            do(greet(wrong, None, MAX_PAYLOAD_BYTES, soon()))
        assert refused.value.reason is Refusal.INSTANCE


def test_descriptors_that_a_client_sends_are_not_taken(face: LocalFace) -> None:
    before = open_files()
    with face.peer() as peer:
        for _ in range(20):
            with Path("/dev/zero").open("rb") as file:
                do(peer.channel.send(Kind.RENEW, [pack_renew("unknown")], soon(), [file.fileno()] * 50))
                with pytest.raises(RefusedError):
                    do(peer.short_answer(Kind.ALIVE, soon()))
        assert not any("/dev/zero" in one for one in open_files())
    assert eventually(lambda: open_files() == before, within_seconds=5)


def test_no_more_clients_than_there_may_be(tmp_path: Path) -> None:
    with local_face(tmp_path, max_clients=3) as face:
        before = open_files()
        for _ in range(3):
            with face.peer(), face.peer(), face.peer():
                with pytest.raises(RefusedError) as refused:
                    do(greet(face.address, None, MAX_PAYLOAD_BYTES, soon()))
                assert refused.value.reason is Refusal.BUSY
                assert "kvshelf_local_clients 3.0" in face.metrics()
            assert eventually(lambda: "kvshelf_local_clients 0.0" in face.metrics(), within_seconds=5)
        assert is_well(face)
        assert eventually(lambda: open_files() == before, within_seconds=5)
        assert 'kvshelf_local_refusals_total{reason="busy"} 3.0' in face.metrics()


def test_a_client_that_does_not_read_holds_nobody_up(face: LocalFace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for more than its socket takes and never reads; its lease ends, and the service hangs up."""
    monkeypatch.setattr(conversation, "STEP_SECONDS", 0.3)
    namespace = register(face.parts, profile="deepseek-v4.1-flash/fp4")
    fill(face.parts, namespace, RecordClass.BLOCK, range(300))
    lease = plan(face.parts, namespace, 300 * BLOCK + 200, lease_ttl_seconds=5).lease
    with face.connect() as sock:
        sock.sendall(hello(face))
        sock.recv(HEADER_BYTES + 16, socket.MSG_WAITALL)
        body = struct.pack("<iB3x", -1, 0) + lease.lease_id.encode()
        sock.setblocking(False)
        asked = pack_header(Kind.OPEN, len(body)) + body
        with pytest.raises((BlockingIOError, BrokenPipeError, ConnectionResetError)):
            list(map(sock.send, [asked] * 100_000))
        assert is_well(face)
        assert eventually(lambda: "kvshelf_local_clients 0.0" in face.metrics(), within_seconds=10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_turned_away_by_what_the_kernel_says(face: LocalFace) -> None:
    """Even where the file's mode would let it in."""
    face.server.path.chmod(0o666)
    for directory in face.server.path.parents:
        if directory.owner() == "root" and str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    code = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        "sock.connect(sys.argv[1])\n"
        "sys.stdout.buffer.write(sock.recv(4096))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(face.server.path)], capture_output=True, timeout=60, check=True
    )
    assert unpack_refusal(done.stdout[HEADER_BYTES:])[0] is Refusal.DENIED
    assert is_well(face)


def test_a_socket_that_was_left_behind_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "a" / ("d" * 100) / "local.sock"
    path.parent.mkdir(parents=True)
    with listening(path) as first:
        with pytest.raises(OSError, match="another process listens there"), listening(path):
            pass
        assert path.exists()
        assert first.fileno() > 0
    assert not path.exists(), "it goes with its service"
    with socket.socket(socket.AF_UNIX) as left, short_path(path) as name:
        left.bind(name)
    assert path.exists()
    with listening(path):
        pass
    path.write_text("mine")
    with pytest.raises(OSError, match="no socket"), listening(path):
        pass
    assert path.read_text() == "mine"


def test_a_stop_hangs_up_on_everybody(tmp_path: Path) -> None:
    before, threads = open_files(), threading.active_count()
    with local_face(tmp_path) as face:
        channels = []
        for _ in range(5):
            channels.append(do(greet(face.address, None, MAX_PAYLOAD_BYTES, soon())).channel)
        waiting = face.connect()
    assert all(not channel.is_quiet for channel in channels)
    assert waiting.recv(1) == b""
    for channel in channels:
        channel.close()
    waiting.close()
    assert not face.server.path.exists()
    assert open_files() == before
    assert threading.active_count() == threads
