"""A real, headless Chromium, driven over its DevTools pipe: no driver and no library between."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.support.served import eventually

BINARY_VARIABLE = "KVSHELF_TEST_CHROMIUM"
_TIMEOUT_SECONDS = 30


class Browser:
    """One page of a browser. As a context manager it runs from the entry to the exit.

    Source of the protocol: the Chrome DevTools Protocol; messages are JSON, each ended by a zero byte, on the
    browser's descriptors 3 (in) and 4 (out).
    """

    def __init__(self) -> None:
        named = os.environ.get(BINARY_VARIABLE)
        self._program = shutil.which(named or "chromium")
        if self._program is None:
            pytest.fail(f"No browser for this test: apt-get install chromium, or set {BINARY_VARIABLE}.", pytrace=False)
        self._home = tempfile.mkdtemp(prefix="kvshelf-browser-")
        self._said = b""
        self._number = 0
        self._session = ""
        self.problems: list[str] = []
        """What the page logged as errors, uncaught exceptions and refused loads included."""
        self.asked_for: list[str] = []
        """The URL of every request the page made."""

    def __enter__(self) -> "Browser":
        (their_in, self._to), (self._from, their_out) = os.pipe(), os.pipe()
        # The browser reads and writes exactly these two descriptors: a shell moves ours there.
        script = f'exec "$@" 3<&{their_in} 4>&{their_out}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        command = ["bash", "-c", script, "bash", str(self._program), *options, f"--user-data-dir={self._home}"]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(_TIMEOUT_SECONDS)
        shutil.rmtree(self._home, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something; fails the test when it refuses."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def look(self, url: str, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Open a page in a window of that size, and wait until its scripts have run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=url)
        is_there = f"document.readyState === 'complete' && location.href === {json.dumps(url)}"
        eventually(lambda: self.value_of(is_there), _TIMEOUT_SECONDS)

    def value_of(self, expression: str) -> Any:
        """What a JavaScript expression comes to in the page, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path) -> bytes:
        """A PNG of the whole page, also written to ``path``."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        picture = base64.b64decode(data)
        path.write_bytes(picture)
        return picture

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._said:
            more = os.read(self._from, 1 << 20)
            assert more, "the browser went away"
            self._said += more
        message, self._said = self._said.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(parameters["request"]["url"])
