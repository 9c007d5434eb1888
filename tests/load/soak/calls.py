"""The OpenAPI document under schemathesis: whatever is asked, the answer is of a documented kind, and never a 500.

Stores are left out: their body is frames, which :mod:`tests.load.soak.frames` tries.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.load.soak.base import Progress, Summary, Trial
from tests.support.engine import register
from tests.support.served import Served

_CONFIG = '[parameters]\n"path.name" = "ns"\n'
"""Calls go to a namespace that is there, so that they get beyond its look-up."""


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Try ``count`` calls of each operation."""
    progress(0, "in a process of its own")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "schemathesis.toml").write_text(_CONFIG)
        served = Served(place)
        served.start()
        try:
            register(served.http)
            program = str(Path(sys.executable).parent / "schemathesis")
            command = [program, "--config-file", str(place / "schemathesis.toml"), "run", f"{served.url}/openapi.json"]
            command += ["--seed", str(seed), "--max-examples", str(count), "--phases", "fuzzing"]
            command += ["--checks", "not_a_server_error,content_type_conformance", "--generation-database", "none"]
            command += ["--exclude-path", "/v1/namespaces/{name}/store", "--no-color"]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            unexpected = [line for line in served.log() if line["event"] == "unexpected_error"]
        finally:
            served.close()
    summary = Summary()
    tried = re.search(r"(\d+) generated", done.stdout)
    summary.tried["calls"] = int(tried[1]) if tried else 0
    if done.returncode or unexpected:
        summary.failures.append(f"status {done.returncode}, {len(unexpected)} unexpected: {done.stdout[-4000:]}")
    return summary


TRIAL = Trial(
    name="calls",
    about="no call that the OpenAPI document allows is a server error",
    unit="examples",
    full=100,
    run=run,
)
