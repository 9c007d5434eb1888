"""The benchmark works from end to end; how fast anything is, only a quiet machine can say."""

import json
import math
from pathlib import Path

import pytest

from tests.load.bench.__main__ import main
from tests.load.bench.base import GOALS
from tests.load.bench.cases import CASES

NOT_YET = {"local_copy_vs_memcpy", "local_verify_vs_memcpy", "lease_256_ms"}
"""Of the path over a local socket."""


def test_a_quick_run_has_every_result_and_says_under_which_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.json"
    assert main(["--quick", "--out", str(out), "--dir", str(tmp_path)]) == 0
    document = json.loads(out.read_text())
    results = document["ratios"] | document["costs"]
    assert set(GOALS) - NOT_YET <= set(results)
    assert {"hash_1m_tokens_ms", "cpu_s_per_gb_http_fetch"} <= set(document["costs"])
    every = [*results.values(), *document["figures"].values()]
    assert all(math.isfinite(value) and value > 0 for value in every)
    assert set(document["raw"]) <= {case.name for case in CASES}
    assert {"cpu", "cores", "load_before", "commit", "python", "redis"} <= set(document["conditions"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in results)
    assert not [path for path in tmp_path.iterdir() if path != out]


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(SystemExit, match="no case is called none"):
        main(["--only", "none"])


def test_some_cases_run_with_their_references_alone(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    main(["--quick", "--only", "http_store", "--out", str(out), "--dir", str(tmp_path)])
    document = json.loads(out.read_text())
    assert list(document["ratios"]) == ["http_store_vs_tcp"]
    assert list(document["raw"]) == ["tcp", "http_store"]
