"""``python -m deploy.watch``: write the dashboards and the rules below ``deploy/``. With ``--check`` only compare."""

import argparse
import json
import sys
from pathlib import Path

import yaml

from deploy.watch.grafana import dashboard_json
from deploy.watch.panels import DASHBOARDS
from deploy.watch.rules import document

DEPLOY = Path(__file__).parents[1]
_HEAD = "# Made by `python -m deploy.watch` from deploy/watch/rules.py: change it there.\n"


def files() -> dict[Path, str]:
    """Every file and what it should hold."""
    made = {
        DEPLOY / "grafana" / "dashboards" / f"{board.uid}.json": json.dumps(dashboard_json(board), indent=2) + "\n"
        for board in DASHBOARDS
    }
    made[DEPLOY / "prometheus" / "rules.yml"] = _HEAD + yaml.safe_dump(document(), sort_keys=False, width=1000)
    return made


def main() -> int:
    """Write or compare; returns 1 when a file differs from what the code says."""
    parser = argparse.ArgumentParser(prog="python -m deploy.watch", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not up to date")
    wanted = files()
    if parser.parse_args().check:
        stale = [path.name for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
        sys.stderr.writelines(f"{name} is not what the code makes: run `python -m deploy.watch`\n" for name in stale)
        return int(bool(stale))
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
