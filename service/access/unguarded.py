"""Access without tokens, for a service that listens on this machine only."""

from service.access.base import ANYBODY, Access, Principal


class UnguardedAccess(Access):
    """Anybody may do anything. A token that is sent all the same is not looked at."""

    @property
    def is_guarded(self) -> bool:
        """False."""
        return False

    def authenticate(self, token: str | None) -> Principal:  # noqa: ARG002 - nobody is asked for one
        """See :meth:`Access.authenticate`. Denies nobody."""
        return ANYBODY

    def refresh(self) -> None:
        """See :meth:`Access.refresh`. Nothing can change."""

    def trouble(self) -> str | None:
        """See :meth:`Access.trouble`. None."""
        return None
