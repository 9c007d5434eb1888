"""docs/grpc.md tells the truth: its example runs, and its tables have every verb and every code."""

import re
import subprocess
import sys
from pathlib import Path

import grpc

from service.grpc.problems import CODES
from service.grpc.verbs.table import VERBS
from tests.support.grpc_engine import GrpcEngine
from tests.support.live import Live

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/grpc.md").read_text()


def test_the_examples_run(engine: GrpcEngine, face: Live) -> None:
    assert face.grpc_url is not None
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
    assert blocks
    code = "\n".join(blocks).replace("127.0.0.1:8711", face.grpc_url.removeprefix("grpc://"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "kvshelf.v1.Kvshelf" in done.stdout
    assert "113920 cold never_stored" in done.stdout
    assert "cold ok" in done.stdout


def test_the_tables_are_complete() -> None:
    table = PAGE[PAGE.index("| verb |") : PAGE.index("`grpc.health")]
    assert set(re.findall(r"`([A-Z]\w+)`", table.replace("`PUT", "").replace("`DELETE`", ""))) >= set(VERBS)
    for code in {*CODES.values(), grpc.StatusCode.DATA_LOSS, grpc.StatusCode.INTERNAL}:
        assert f"`{code.name}`" in PAGE


def test_the_example_runs_on_the_service_that_the_other_pages_used_before() -> None:
    others = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md") if path.name != "grpc.md")
    (name,) = re.findall(r'"Register", name="(.*?)"', PAGE)
    assert name not in set(re.findall(r'register\("(.*?)"', others)), "its fields are others, which is a conflict"
