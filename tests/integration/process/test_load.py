"""A hundred sessions at once for some seconds; the soak does it for ten minutes."""

from tests.load.soak import load
from tests.load.soak.base import silent


def test_a_hundred_sessions_at_once_see_no_error_and_no_wrong_byte_and_memory_is_flat() -> None:
    summary = load.run(30, 0, silent)
    assert summary.failures == []
    assert summary.tried["requests"] > load.SESSIONS
    assert summary.tried["bytes verified"] > 10 << 20
