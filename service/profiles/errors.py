"""What goes wrong with profiles. Every text names the field and how to mend it."""

from collections.abc import Iterable
from difflib import get_close_matches


class ProfileError(ValueError):
    """A profile that is not well formed, or a use its geometry does not allow."""


class UnknownProfileError(ProfileError):
    """No profile has this id. ``suggestions`` are the close ones, the closest first; there may be none."""

    def __init__(self, profile_id: str, known: Iterable[str]) -> None:
        self.profile_id = profile_id
        self.suggestions = tuple(get_close_matches(profile_id, list(known), n=3, cutoff=0.5))
        hint = f"did you mean {' or '.join(self.suggestions)}?" if self.suggestions else "none is close"
        super().__init__(f"no profile is called {profile_id[:128]!r}: {hint} (`kvshelf profile list` shows all)")
