"""The log: one JSON object a line, whatever happens; text for people when asked; no errors of a client's making."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kvshelf_client.frames import MEDIA_TYPE
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, keys_of, plan, register, store, tokens
from tests.support.served import Served, eventually

PROMPT = tokens(200 * BLOCK + 129)


def leave_after(served: Served, request: bytes, *, read_bytes: int = 0) -> None:
    """Send bytes, read a few, and go away without a word."""
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.sendall(request)
        if read_bytes:
            assert connection.recv(read_bytes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def head(method: str, path: str, length: int, media_type: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Type: {media_type}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def test_clients_that_misbehave_are_not_the_services_errors(serve: Serve) -> None:
    served = serve(KVSHELF_SERVER__LOG_LEVEL="debug")
    register(served.http, bytes_per_token=512)
    keys = keys_of(served.http, PROMPT)
    register(served.http, "small")
    store(served.http, blocks(keys_of(served.http, PROMPT, "small")), "small")
    lease_id = plan(served.http, PROMPT, "small")["lease"]["lease_id"]

    leave_after(served, b"no HTTP at all\r\n\r\n", read_bytes=100)
    leave_after(served, b"GET /healthz HTTP/1.1\r\nHo")
    leave_after(served, head("POST", "/v1/namespaces/ns/plan", 4000, "application/octet-stream") + bytes(100))
    leave_after(served, head("POST", "/v1/namespaces/ns/store", 1 << 20, MEDIA_TYPE) + blocks(keys)[:70_000])
    leave_after(served, head("POST", "/v1/namespaces/none/store", 1 << 20, MEDIA_TYPE) + bytes(70_000))
    leave_after(served, head("GET", f"/v1/leases/{lease_id}/fetch", 0, MEDIA_TYPE), read_bytes=100)

    def is_quiet() -> bool:
        return bool(served.http.get("/v1/stats").json()["leases"]["count"] == 1)

    eventually(is_quiet, 5)
    assert served.stop() == 0
    log = served.log()
    assert [line["event"] for line in log if line["level"] in ("error", "critical")] == []
    assert all(key not in json.dumps(log) for key in keys)


def test_text_for_people(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "service.cli.main", "serve", "--port", "0", "--data-dir", f"{tmp_path}/data"]
    pipe, environment = subprocess.PIPE, {**os.environ, "KVSHELF_SERVER__LOG_FORMAT": "text"}
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "stopped" in rest
    with pytest.raises(json.JSONDecodeError):
        json.loads(rest)
