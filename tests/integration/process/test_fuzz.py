"""The fuzzers, for some seconds; the soak does it for longer."""

from tests.load.soak import calls, frames
from tests.load.soak.base import silent


def test_the_frame_parser_takes_any_bytes() -> None:
    summary = frames.run(6, 1, silent)
    assert not summary.failures
    assert summary.tried["inputs"] > 1000


def test_no_documented_call_is_a_server_error() -> None:
    summary = calls.run(5, 1, silent)
    assert not summary.failures
    assert summary.tried["calls"] > 50
