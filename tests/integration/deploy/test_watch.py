"""Dashboards and rules: made from code, of metrics that exist, evaluated by a real Prometheus over a real service."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from deploy.watch.__main__ import files
from deploy.watch.panels import DASHBOARDS, Panel
from deploy.watch.rules import ALERTS, RECORDS
from service.metrics import Metrics
from tests.support.prometheus import Prometheus
from tests.support.served import Served, eventually

DEPLOY = Path(__file__).parents[3] / "deploy"
_SERIES = re.compile(r"\b(?:instance\w*:)?kvshelf_\w+(?::\w+)?")


def panels() -> list[Panel]:
    return [panel for board in DASHBOARDS for _, row in board.rows for panel in row]


def expressions() -> dict[str, str]:
    """Every PromQL expression by where it stands."""
    found = {f"panel {panel.title!r}": expr for panel in panels() for expr, _ in panel.queries}
    return found | {f"rule {rule.name}": rule.expr for rule in (*RECORDS, *ALERTS)}


def series_that_exist() -> set[str]:
    names = {record.name for record in RECORDS}
    for family in Metrics("0").registry.collect():
        names |= {sample.name for sample in family.samples}
    return names


def test_the_files_are_what_the_code_makes() -> None:
    stale = [path.name for path, text in files().items() if path.read_text() != text]
    assert not stale, "run `python -m deploy.watch`"
    assert {path.name for path in (DEPLOY / "grafana" / "dashboards").iterdir()} == {
        path.name for path in files() if path.suffix == ".json"
    }


@pytest.mark.parametrize("place", list(expressions()))
def test_it_names_only_series_that_exist(place: str) -> None:
    named = set(_SERIES.findall(expressions()[place]))
    assert named - series_that_exist() == set()
    assert named or place == "rule KvshelfDown"


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    for file in ("rules.yml", "prometheus.yml"):
        (tmp_path / file).write_text((DEPLOY / "prometheus" / file).read_text())
    (tmp_path / "kvshelf-token").touch()
    checked = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_an_entry_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", (DEPLOY.parent / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]


def test_grafana_finds_the_dashboards_where_the_composition_puts_them() -> None:
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/kvshelf.yaml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    for path in (DEPLOY / "grafana" / "dashboards").iterdir():
        board = json.loads(path.read_text())
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids) > 5
        cells = [
            (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["h"])
        ]
        assert len(set(cells)) == len(cells), "no panel lies on another"
        assert max(x for x, _ in cells) < 24


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Served]]:
    """A service under requests, and a Prometheus with the shipped configuration that has scraped it a few times."""
    served = Served(tmp_path_factory.mktemp("served"))
    served.start()
    with Prometheus(tmp_path_factory.mktemp("prometheus"), served.url) as prometheus:
        # Counters that were never scraped at 0 do not rise.
        eventually(partial(prometheus.query, "kvshelf_build_info"), 30)
        command = [sys.executable, "-P", "-m", "service.cli.main", "replay", "sample", "--url", served.url]
        replay = subprocess.run([*command, "--sessions", "4", "--json"], capture_output=True, text=True, check=False)
        assert replay.returncode == 0, replay.stderr
        eventually(lambda: prometheus.query("instance:kvshelf_hit_tokens:ratio_rate5m"), 30)
        yield prometheus, served
    served.close()


def test_a_real_prometheus_evaluates_every_rule(watched: tuple[Prometheus, Served]) -> None:
    prometheus, _ = watched
    rules = prometheus.rules()
    assert {rule["name"] for rule in rules} == {rule.name for rule in (*RECORDS, *ALERTS)}
    eventually(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), 20)
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []


def test_its_figures_are_those_of_the_service(watched: tuple[Prometheus, Served]) -> None:
    prometheus, served = watched
    lines = served.http.get("/metrics").text.splitlines()
    counted = sum(float(line.split()[1]) for line in lines if line.startswith("kvshelf_prompt_tokens_total{"))
    assert counted > 0
    seen = "sum(kvshelf_prompt_tokens_total)"
    eventually(lambda: float(prometheus.query(seen)[0]["value"][1]) == counted, 10)
    (ratio,) = prometheus.query("instance:kvshelf_hit_tokens:ratio_rate5m")
    assert 0 < float(ratio["value"][1]) <= 1


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_every_panel_has_something_to_show(watched: tuple[Prometheus, Served], panel: Panel) -> None:
    prometheus, _ = watched
    for expr, _ in panel.queries:
        expression = expr.replace("$instance", ".*").replace("$__rate_interval", "1m")
        assert eventually(partial(prometheus.query, expression), 20), expression
