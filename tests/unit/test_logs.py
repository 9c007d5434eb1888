"""Logs as a process writes them: whatever says something, says it as one JSON object a line."""

import json
import subprocess
import sys

import pytest

SPEAK = """
import logging, sys, warnings
import structlog
from service.logs import configure_logs
from service.settings import ServerSettings

configure_logs(ServerSettings(log_level=sys.argv[1], log_format=sys.argv[2]))
warnings.warn("a warning\\nof two lines", DeprecationWarning)
structlog.get_logger("kvshelf").debug("quiet")
structlog.get_logger("kvshelf").info("said", number=3)
logging.getLogger("library").info("chatter")
try:
    raise ValueError("broken\\nin two")
except ValueError:
    structlog.get_logger("kvshelf").exception("ours")
    logging.getLogger("uvicorn.error").exception("theirs")
"""


def speak(level: str, log_format: str) -> list[str]:
    """What a process with this logging says on standard error."""
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", SPEAK, level, log_format], capture_output=True, text=True, check=True
    )
    assert ended.stdout == ""
    return ended.stderr.splitlines()


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["warning", "debug", "info", "error", "error"]),
        ("info", ["warning", "info", "error", "error"]),
        ("warning", ["warning", "error", "error"]),
        ("error", ["error", "error"]),
    ],
)
def test_json(level: str, events: list[str]) -> None:
    lines = [json.loads(line) for line in speak(level, "json")]
    assert [line["level"] for line in lines] == events
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert [line["event"] for line in lines[-2:]] == ["ours", "theirs"]
    assert all("ValueError: broken\nin two" in line["exception"] for line in lines[-2:])


def test_text() -> None:
    text = "\n".join(speak("info", "text"))
    assert "said" in text
    assert "number=3" in text
    assert "ValueError: broken" in text
    assert "chatter" not in text


def test_a_log_that_cannot_be_written_hurts_nobody() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", SPEAK + "print('went on')", "info", "json"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert ended.stdout == "went on\n"
