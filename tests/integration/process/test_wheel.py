"""What is handed out: the wheel has all that runs and nothing else, and the client comes alone."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

from service.version import __version__

ROOT = Path(__file__).parents[3]


def build(source: Path, directory: Path) -> Path:
    """Build the wheel of a source directory, with what is installed."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(source)], check=True, timeout=100)
    (wheel,) = directory.glob("*.whl")
    return wheel


def modules_of(*packages: str) -> set[str]:
    """The files of packages in the source tree, named as an import path would be."""
    return {
        path.relative_to((ROOT / package).parent).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_all_that_runs(tmp_path: Path) -> None:
    wheel = build(ROOT, tmp_path / "dist")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"kvshelf-{__version__}.dist-info"
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert {name for name in names if not name.startswith(info)} == modules_of(
        "service", "storage", "clients/kvshelf_client"
    )
    assert names >= {"service/profiles/builtin.toml", "service/traces/sample.jsonl.gz", "kvshelf_client/py.typed"}
    assert scripts == "[console_scripts]\nkvshelf = service.cli.main:main\n"
    check_installed(wheel, tmp_path)


def check_installed(wheel: Path, directory: Path) -> None:
    """Install the wheel in a directory of its own and run it from there, away from the source tree."""
    installed = directory / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(installed)]
    subprocess.run([*command, str(wheel)], check=True, timeout=100)

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.run(
            arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    assert run(sys.executable, "-c", "import service; print(service.__file__)").startswith(str(installed))
    program = str(installed / "bin" / "kvshelf")
    assert run(program, "--version") == f"kvshelf {__version__}\n"
    assert "deepseek-v4.1-flash/fp4" in run(program, "profile", "list")
    assert "requests" in run(program, "demo", "--speed", "10000", "--requests", "3")


def test_the_client_comes_alone(tmp_path: Path) -> None:
    wheel = build(ROOT / "clients", tmp_path)
    with ZipFile(wheel) as archive:
        info = f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info"
        names = {name for name in archive.namelist() if not name.startswith(info)}
        metadata = archive.read(f"{info}/METADATA").decode()
    assert names == modules_of("clients/kvshelf_client")
    needs = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [need.partition(">")[0] for need in needs if "extra ==" not in need] == ["xxhash"]


def test_both_have_one_version() -> None:
    versions = {
        tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]["version"] for path in (".", "clients")
    }
    assert versions == {__version__}
