"""The repository holds itself to its own rules: sizes, docstrings, layering, one owner of clocks and of printing."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES, FILE_LINES_MEDIAN = 600, 150
FUNCTION_LINES, FUNCTION_LINES_USUAL, USUAL_SHARE = 70, 40, 0.95
GENERATED = "_pb2.py"
PRODUCT = ("service/", "storage/", "clients/")
CLOCK_OWNER, PRINT_OWNER = "storage/clock.py", "service/cli/console.py"
FORBIDDEN_CALLS = {
    "time.time", "time.monotonic", "time.perf_counter", "time.sleep", "random.random", "random.randint",
    "random.choice", "random.shuffle", "datetime.now", "datetime.utcnow",
    "pickle.loads", "pickle.load", "eval", "exec", "yaml.load",
}  # fmt: skip
REGISTRY_HOSTS = re.compile(
    "|".join(["pypi" + r"\.org", "python" + r"hosted\.org", "registry" + r"\.npmjs", r"deb\.debian"])
)


@cache
def tracked_files() -> tuple[str, ...]:
    """Every file git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@cache
def product_modules() -> dict[str, ast.Module]:
    """The syntax tree of every module that is shipped, but for what is generated: the bands are for people."""
    return {
        name: ast.parse((ROOT / name).read_text())
        for name in tracked_files()
        if name.endswith(".py") and name.startswith(PRODUCT) and not name.endswith(GENERATED)
    }


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def definitions(tree: ast.AST) -> Iterator[Definition]:
    """All classes, functions and methods of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_is_something_to_check() -> None:
    assert len(product_modules()) > 40
    assert {"README.md", "Makefile", ".ci/run"} <= set(tracked_files())


def test_files_are_small() -> None:
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in tracked_files() if name.endswith(".py")}
    too_long = {name: count for name, count in lines.items() if count > FILE_LINES}
    assert not too_long
    assert median(count for name, count in lines.items() if name in product_modules()) <= FILE_LINES_MEDIAN


def test_functions_are_short() -> None:
    lengths = {
        f"{name}:{node.name}": length(node) for name, tree in product_modules().items() for node in functions(tree)
    }
    assert not {name: count for name, count in lengths.items() if count > FUNCTION_LINES}
    usual = sum(count <= FUNCTION_LINES_USUAL for count in lengths.values())
    assert usual / len(lengths) >= USUAL_SHARE


def test_public_definitions_are_documented() -> None:
    silent = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in product_modules().items()
        for node in definitions(tree)
        if not node.name.startswith("_") and not ast.get_docstring(node) and not _is_nested(tree, node)
    ]
    assert not silent


def _is_nested(tree: ast.Module, node: ast.AST) -> bool:
    """Whether a definition stands inside a function, or inside a private class, and so is nobody's interface."""
    for outer in ast.walk(tree):
        inside_function = isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        inside_private = isinstance(outer, ast.ClassDef) and outer.name.startswith("_")
        if (inside_function or inside_private) and outer is not node and node in ast.walk(outer):
            return True
    return False


def test_every_module_says_what_it_is() -> None:
    assert not [name for name, tree in product_modules().items() if not ast.get_docstring(tree)]


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(
    ("layer", "forbidden"),
    [("storage/", {"service"}), ("clients/", {"service", "storage", "fastapi", "redis", "lmdb", "pydantic", "numpy"})],
)
def test_layers_point_one_way(layer: str, forbidden: set[str]) -> None:
    modules = {name: tree for name, tree in product_modules().items() if name.startswith(layer)}
    assert modules
    assert not {name: both for name, tree in modules.items() if (both := imported(tree) & forbidden)}


def test_the_planner_and_the_profiles_do_no_io() -> None:
    pure = {name: tree for name, tree in product_modules().items() if name.startswith("service/planner/")}
    assert pure
    assert not {
        name: both for name, tree in pure.items() if (both := imported(tree) & {"storage", "os", "pathlib", "time"})
    }


def test_clocks_chance_and_printing_have_one_owner() -> None:
    strays = []
    for name, tree in product_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                owner = PRINT_OWNER if called == "print" else CLOCK_OWNER
                if (called == "print" or called in FORBIDDEN_CALLS) and name != owner:
                    strays.append(f"{name}:{node.lineno} {called}")
    assert not strays


def test_broad_excepts_give_their_reason() -> None:
    bare = []
    for name, tree in product_modules().items():
        lines = (ROOT / name).read_text().splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and "#" not in lines[node.lineno - 1]:
                bare.append(f"{name}:{node.lineno}")
    assert not bare


def test_no_file_names_a_package_registry() -> None:
    named = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if b"\0" not in data and REGISTRY_HOSTS.search(data.decode("utf-8", "replace")):
            named.append(name)
    assert not named


def test_decision_records_have_a_number_each() -> None:
    numbers = [int(path.name[:4]) for path in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))
    assert numbers


def test_architecture_names_every_module() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    packages = {str(Path(name).parent) for name in product_modules()}
    assert not [package for package in sorted(packages) if f"`{package}/`" not in text]
    missing = [name for name in product_modules() if not name.endswith("__init__.py") and Path(name).name not in text]
    assert not missing
