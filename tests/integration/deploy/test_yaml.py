"""Every YAML file under `deploy/` is clean YAML."""

import subprocess
import sys

from tests.support.deployed import DEPLOY


def test_the_linter_accepts_every_file() -> None:
    files = [path for path in DEPLOY.rglob("*.y*ml") if path.name != "rules.yml"]
    assert len(files) > 5
    command = [sys.executable, "-m", "yamllint", "--strict", "--config-file", str(DEPLOY / ".yamllint")]
    checked = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")
