"""The soak runs every trial there is, each in a process of its own, and fails when one of them does."""

import json
from pathlib import Path

import pytest

from tests.load.soak import __main__ as soak
from tests.load.soak.base import Summary, Trial
from tests.load.soak.runner import run_here, text_of
from tests.load.soak.trials import TRIALS


def test_every_module_with_a_trial_is_in_the_list() -> None:
    folder = Path(soak.__file__).parent
    modules = [path.stem for path in folder.glob("*.py") if "\nTRIAL = Trial(" in path.read_text()]
    assert len(modules) == len(TRIALS) == len({trial.name for trial in TRIALS})


def test_a_trial_runs_in_a_process_of_its_own_and_leaves_its_result(tmp_path: Path) -> None:
    status = soak.main(["--only", "machine", "--count", "1", "--seed", "3", "--results", str(tmp_path)])
    (result,) = json.loads((tmp_path / "soak.json").read_text())
    assert status == 0
    assert (result["trial"], result["count"], result["seed"], result["failures"]) == ("machine", 1, 3, [])
    assert result["tried"]["programs"] == 1


@pytest.mark.parametrize("is_raised", [False, True])
def test_what_goes_wrong_is_told(is_raised: bool) -> None:
    def run(count: int, seed: int, progress: object) -> Summary:
        assert not is_raised, "something broke"
        return Summary(failures=["something broke"])

    result = run_here(Trial("broken", "nothing", "seeds", 1, run), 1, 0)
    assert "something broke" in result["failures"][0]
    assert "broken: FAILED" in text_of(result)
