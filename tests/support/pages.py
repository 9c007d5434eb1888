"""The pages for people, and what of them runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fenced(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text())


def run_examples(page: Path, **places: str) -> "subprocess.CompletedProcess[str]":
    """Run all Python blocks of a page, one after the other, in a process of its own where a warning is an error.

    ``places`` are addresses as the page shows them, with what is put in their stead: ``{"127.0.0.1:8710": ...}``.
    """
    program = "\n".join(fenced(page, "python"))
    for shown, place in places.items():
        assert shown in program, f"{page.name} does not name {shown}"
        program = program.replace(shown, place)
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
