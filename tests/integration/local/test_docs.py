"""The example of docs/local-path.md runs as it is shown."""

from pathlib import Path

from tests.support.pages import ROOT, run_examples
from tests.support.served import Served


def test_the_example(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    ended = run_examples(ROOT / "docs/local-path.md", **{"127.0.0.1:8710": served.url.removeprefix("http://")})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "6 blocks were used, and all of them stood still\n"
    assert served.stop() == 0
    served.close()
