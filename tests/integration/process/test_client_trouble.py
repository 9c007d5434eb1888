"""Two hundred troubles between a client and its service; the soak goes through ten thousand."""

from tests.load.soak import client_trouble
from tests.load.soak.base import silent
from tests.load.soak.troubles import TROUBLES


def test_a_client_answers_in_time_is_never_wrong_and_comes_back() -> None:
    summary = client_trouble.run(200, 0, silent)
    assert not summary.failures
    troubles = {trouble.__name__ for trouble in TROUBLES} | {"frozen", "killed"}
    assert {name for name in troubles if summary.tried[name]} == troubles
