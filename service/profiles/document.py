"""Strict decoding of profiles from TOML files and REST bodies: unknown keys and values out of bounds are refused."""

import dataclasses
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from service.planner.base import Replay
from service.profiles.errors import ProfileError
from service.profiles.geometry import GlobalRows, Part, State, WindowRows
from service.profiles.profile import Profile

MAX_FILE_BYTES = 1 << 20

_NESTED: dict[str, type[Any]] = {
    "global_rows": GlobalRows,
    "window_rows": WindowRows,
    "recurrent_state": State,
    "auxiliary_state": State,
    "row": Part,
    "state": Part,
}


def profile_from_document(document: Mapping[str, Any]) -> Profile:
    """A profile from plain data: a TOML document, or the inline object of a REST request.

    Raises:
        ProfileError: an unknown or missing key, a value of the wrong type or out of bounds, or components that
            contradict each other. The text names the place.
    """
    _refuse_unknown_keys(document, Profile, "")
    try:
        return msgspec.convert(document, Profile)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        place = place.strip("`.")
        if place == "replay":
            text += f"; one of {', '.join(Replay)}"
        raise ProfileError(f"{place}: {text}" if place else text) from None


def load_profile_file(path: str | Path) -> Profile:
    """The profile of a user's TOML file; ``docs/profiles.md`` describes the format.

    Raises:
        ProfileError: as :func:`profile_from_document`, or a file that cannot be read or is no TOML; the text
            names the file.
    """
    try:
        data = _read_bounded(Path(path))
        return profile_from_document(tomllib.loads(data.decode()))
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    except (ProfileError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: {error}") from None


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ProfileError(f"the file has more than {MAX_FILE_BYTES} bytes, which no profile needs")
    return data


def _refuse_unknown_keys(value: object, kind: type[Any], place: str) -> None:
    """Walk a document beside the classes it is for. Values of the wrong type are left for the decoder to refuse."""
    if not isinstance(value, Mapping):
        return
    known = [field.name for field in dataclasses.fields(kind)]
    for key, nested in value.items():
        if key not in known:
            close = get_close_matches(str(key), known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}? " if close else ""
            name, where = str(key)[:64], place or "profile"
            raise ProfileError(f"{where}: unknown key {name!r}; {hint}Known keys: {', '.join(known)}")
        if key in _NESTED and isinstance(nested, list | tuple):
            for index, item in enumerate(nested):
                _refuse_unknown_keys(item, _NESTED[key], f"{place}.{key}[{index}]".lstrip("."))
