"""Plain text tables."""

import pytest

from service.cli.tables import milliseconds, share, size, table


def test_a_table() -> None:
    assert table(("name", "n"), [("a", "1"), ("longer", "1,000")]) == "name        n\na           1\nlonger  1,000"


def test_a_table_without_rows() -> None:
    assert table(("a", "b"), []) == "a  b"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (1_351_680, "1.35 MB"), (47.5e9, "47.5 GB"), (3e18, "3e+03 PB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


def test_shares_and_latencies() -> None:
    assert (share(1, 3), share(0, 3), share(0, 0)) == ("33.3%", "0.0%", "-")
    assert milliseconds(0.01234) == "12.34"
