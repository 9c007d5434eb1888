"""A real Prometheus over one service: the shipped configuration, with what belongs to a machine replaced."""

import json
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.served import eventually

_SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"


class Prometheus:
    """Scrapes and evaluates every second. As a context manager it runs from the entry to the exit.

    Args:
        directory: for its configuration and data.
        url: the service's.
    """

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        text = (_SHIPPED / "prometheus.yml").read_text()
        text = text.replace("kvshelf:8710", urlsplit(url).netloc).replace("15s", "1s")
        (directory / "prometheus.yml").write_text(text)
        (directory / "rules.yml").write_text((_SHIPPED / "rules.yml").read_text())
        (directory / "kvshelf-token").touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(timeout=10)

    def __enter__(self) -> "Prometheus":
        port = _free_port()
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log)
        self._http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        eventually(self._is_ready, 30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector an expression evaluates to now; fails the test when it is refused."""
        answer = json.loads(self._http.get("/api/v1/query", params={"query": expression}).text)
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        groups = json.loads(self._http.get("/api/v1/rules").text)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-500:]
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
