"""The names of namespaces: what both sides take for one."""

import re

RULE = "1 to 128 of A-Z a-z 0-9 . _ - and not . or .."
_IS_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII).fullmatch


def is_name(text: str) -> bool:
    """Whether a namespace may be called that."""
    return _IS_NAME(text) is not None and text not in (".", "..")


def check_name(name: str) -> None:
    """Raises ValueError when no namespace may be called that."""
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(f"the name of a namespace is {RULE}, got {name!r}")
