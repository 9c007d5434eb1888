"""The profiles that come with the package: ``builtin.toml`` beside this module."""

import tomllib
from functools import cache
from importlib.resources import files

from service.profiles.document import load_profile_file, profile_from_document
from service.profiles.errors import ProfileError, UnknownProfileError
from service.profiles.profile import Profile


@cache
def _builtin() -> dict[str, Profile]:
    text = files(__package__).joinpath("builtin.toml").read_text("utf-8")
    profiles = [profile_from_document(document) for document in tomllib.loads(text)["profile"]]
    by_id = {profile.id: profile for profile in profiles}
    if len(by_id) != len(profiles):
        raise ProfileError("builtin.toml holds an id twice")
    return by_id


def list_profiles() -> list[Profile]:
    """All builtin profiles, in the order of the file."""
    return list(_builtin().values())


def get_profile(profile_id: str) -> Profile:
    """The builtin profile of an id.

    Raises:
        UnknownProfileError: there is none; the text suggests close ids.
    """
    try:
        return _builtin()[profile_id]
    except KeyError:
        raise UnknownProfileError(profile_id, _builtin()) from None


def find_profile(id_or_path: str) -> Profile:
    """What a command line names: a builtin profile's id, or a TOML file where the text ends in ``.toml``.

    Raises:
        UnknownProfileError: no builtin profile has this id.
        ProfileError: as :func:`~service.profiles.document.load_profile_file`.
    """
    return load_profile_file(id_or_path) if id_or_path.endswith(".toml") else get_profile(id_or_path)
