"""What a deploy file would start, started without a container: its own command line and environment, other places."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
KVSHELF = [sys.executable, "-P", "-m", "service.cli.main"]
"""The ``kvshelf`` of this tree, wherever the deploy file says it is installed."""
_STARTED = re.compile(rb"kvshelf serves on (\S+)")


def command_of(words: Sequence[str], moved: Mapping[str, Path | str]) -> list[str]:
    """A deploy file's command line with ``kvshelf`` and the paths in ``moved`` replaced by what is here."""
    first, *rest = words
    program = KVSHELF if Path(first).name == "kvshelf" else [first]
    for place, here in moved.items():
        rest = [word.replace(place, str(here)) for word in rest]
    return [*program, *rest]


def inherited(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of kvshelf, and what the deploy file adds."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KVSHELF_")} | dict(extra)


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is killed at the end when it still runs."""
    with subprocess.Popen(command, env=inherited(environment), stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def url_said_by(process: "subprocess.Popen[bytes]") -> str:
    """The address that ``kvshelf serve`` prints once it answers."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = _STARTED.search(line)
    assert found, f"it said {line!r}"
    return found.group(1).decode()


class ServiceManager:
    """The end of a notify socket that a service manager has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(30)

    def told(self) -> str:
        """The next state the service tells; TimeoutError after 30 s without one."""
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()
