"""Metrics: every one is documented, and nothing is documented that is not there."""

import re
from pathlib import Path

from service.metrics import Metrics

ROOT = Path(__file__).parents[2]


def families(metrics: Metrics) -> dict[str, str]:
    """Name and help text of every metric family."""
    lines = metrics.render(lambda: None).decode().splitlines()
    return {line.split()[2]: line.split(" ", 3)[3] for line in lines if line.startswith("# HELP")}


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    documented = re.findall(r"^\| `(kvshelf_[a-z_]+)` \|", (ROOT / "docs/metrics.md").read_text(), re.M)
    assert sorted(documented) == sorted(families(Metrics("1")))


def test_every_metric_says_what_it_is() -> None:
    assert all(len(text) > 10 and text.endswith(".") for text in families(Metrics("1")).values())


def test_counts_from_a_tier_reach_their_labels() -> None:
    metrics = Metrics("1")
    metrics.evicted("ssd", "expired", 3, 300)
    metrics.moved("dram", "read", 5)
    metrics.fault("ssd", "io")
    metrics.age_at_expiry("ssd", 100.0)
    text = metrics.render(lambda: None).decode()
    for sample in (
        'kvshelf_evictions_total{cause="expired",tier="ssd"} 3.0',
        'kvshelf_evicted_bytes_total{cause="expired",tier="ssd"} 300.0',
        'kvshelf_tier_bytes_total{op="read",tier="dram"} 5.0',
        'kvshelf_tier_faults_total{kind="io",tier="ssd"} 1.0',
        'kvshelf_age_at_expiry_seconds_count{tier="ssd"} 1.0',
    ):
        assert sample in text
