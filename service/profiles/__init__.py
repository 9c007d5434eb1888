"""KV geometry as data: which bytes a model keeps for a token and at a boundary, computed from rows and ratios."""

from service.profiles.builtin import find_profile, get_profile, list_profiles
from service.profiles.document import load_profile_file, profile_from_document
from service.profiles.errors import ProfileError, UnknownProfileError
from service.profiles.profile import Profile

__all__ = [
    "Profile",
    "ProfileError",
    "UnknownProfileError",
    "find_profile",
    "get_profile",
    "list_profiles",
    "load_profile_file",
    "profile_from_document",
]
