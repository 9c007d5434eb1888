"""A service starts without what it was not asked for: of the time until it is ready, importing takes the most."""

import subprocess
import sys
from pathlib import Path

import pytest

_SERVE = """
import signal, sys
from pathlib import Path
from service.cli.main import build_parser
from service.cli.options import settings_from
from service.server import serve
from storage.clock import SystemClock

def ready(*_):
    print(*sys.modules)
    signal.raise_signal(signal.SIGTERM)

arguments = build_parser(["serve"]).parse_args(["serve", "--port", "0", *sys.argv[1:]])
serve(settings_from(arguments), SystemClock(), ready)
"""
UNASKED = ("cryptography", "grpc", "httpx", "numpy", "opentelemetry.sdk", "redis", "service.replay", "service.traces")


def modules_of(directory: Path, *options: str) -> set[str]:
    """What a service has imported when it is ready."""
    command = [sys.executable, "-c", _SERVE, "--data-dir", str(directory / "data"), *options]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


def test_a_service_imports_nothing_that_it_was_not_asked_for(tmp_path: Path) -> None:
    modules = modules_of(tmp_path)
    assert "service.rest.app" in modules
    assert modules.isdisjoint(UNASKED), sorted(modules.intersection(UNASKED))


@pytest.mark.parametrize(
    ("options", "module"), [(("--grpc-port", "0"), "grpc"), (("--redis-url", "redis://127.0.0.1:1"), "redis")]
)
def test_it_imports_what_it_was_asked_for(tmp_path: Path, options: tuple[str, str], module: str) -> None:
    assert module in modules_of(tmp_path, *options)
