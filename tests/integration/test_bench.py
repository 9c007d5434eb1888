"""The benchmark works from end to end; how fast anything is, only a quiet machine can say."""

import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.child import INTERRUPTED
from tests.load.bench import document
from tests.load.bench.__main__ import main
from tests.load.bench.base import GOALS
from tests.load.bench.cases import CASES
from tests.support.served import eventually

NOT_YET = {"local_copy_vs_memcpy", "local_verify_vs_memcpy", "lease_256_ms"}
"""Of the path over a local socket."""


def test_a_quick_run_has_every_result_and_says_under_which_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.json"
    assert main(["--quick", "--out", str(out), "--dir", str(tmp_path)]) == 0
    written = json.loads(out.read_text())
    results = written["ratios"] | written["costs"]
    assert set(GOALS) - NOT_YET <= set(results)
    assert {"hash_1m_tokens_ms", "cpu_s_per_gb_http_fetch"} <= set(written["costs"])
    results.pop("server_memory_over_pools_mb")  # below none of the pool where little is stored
    every = [*results.values(), *written["figures"].values()]
    assert all(math.isfinite(value) and value > 0 for value in every)
    assert set(written["raw"]) <= {case.name for case in CASES}
    assert {"cpu", "cores", "load_before", "commit", "python", "redis"} <= set(written["conditions"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in results)
    assert not [path for path in tmp_path.iterdir() if path != out]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    asked = ["--only", "http_fetch", "--rounds", "9999", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "tests.load.bench", *asked]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as running:
        eventually(lambda: bool(list(tmp_path.glob("*/main/segments/*.seg"))), 60)
        running.send_signal(number)
        assert running.wait(60) == INTERRUPTED
    assert not list(tmp_path.iterdir())
    eventually(lambda: not _is_alive(running.pid, str(tmp_path)), 10)


def _is_alive(group: int, argument: str) -> bool:
    """Whether a process of that group, or with such an argument, has not ended."""
    listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return any(
        state[0] != "Z" and (int(of_group) == group or argument in "".join(rest)) for of_group, state, *rest in rows
    )


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(SystemExit, match="no case is called none"):
        main(["--only", "none"])


def test_some_cases_run_with_their_references_alone(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    main(["--quick", "--only", "http_store", "--out", str(out), "--dir", str(tmp_path)])
    written = json.loads(out.read_text())
    assert list(written["ratios"]) == ["http_store_vs_tcp"]
    assert list(written["raw"]) == ["tcp", "http_store"]


def test_results_go_into_the_document_between_its_marks(tmp_path: Path) -> None:
    runs = []
    for number, value in enumerate((0.61, 0.9)):
        runs.append(tmp_path / f"{number}.json")
        ratios = {"http_fetch_vs_tcp": value} | ({"other": 2.0} if number == 0 else {})
        part = {"ratios": ratios, "costs": {"plan_1m_tokens_ms": 41.0}, "figures": {"tcp_gb_s": 3.0}}
        runs[-1].write_text(json.dumps(part | {"conditions": {"cpu": "x", "cores": 2}}))
    path = tmp_path / "document.md"
    path.write_text(f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n")
    assert document.main([str(run) for run in runs], path) == 0
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith(f"{document.END}\nafter\n")
    assert "| `http_fetch_vs_tcp` | 0.9 | 0.5 | 0.8 | aim |" in text
    assert "| `other` | 2 | | |  |" in text
    assert "| `plan_1m_tokens_ms` | 41 | 40 | 15 | **below** |" in text
    assert "| `tcp_gb_s` | 3 |" in text


def test_the_shipped_document_has_a_place_for_results() -> None:
    text = document.DOCUMENT.read_text()
    assert 0 < text.index(document.BEGIN) < text.index(document.END)
