"""Access by a fixed list of tokens, for tests that are not about where tokens come from."""

from collections.abc import Mapping

from service.access import OPERATOR, Access, AccessDeniedError, Principal, Scope

EVERYTHING = frozenset(Scope)


class ListedAccess(Access):
    """The tokens of ``principals`` are taken, all others denied."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = dict(principals)

    @property
    def is_guarded(self) -> bool:
        """See :attr:`Access.is_guarded`."""
        return True

    def authenticate(self, token: str | None) -> Principal:
        """See :meth:`Access.authenticate`."""
        principal = self._principals.get(token or "")
        if principal is None:
            raise AccessDeniedError("this token is not taken")
        return principal

    def take_back(self, token: str) -> None:
        """From now on it is not taken any more."""
        del self._principals[token]

    def refresh(self) -> None:
        """See :meth:`Access.refresh`."""

    def trouble(self) -> str | None:
        """See :meth:`Access.trouble`."""
        return None


def two_tenants(more: Mapping[str, Principal] | None = None) -> ListedAccess:
    """Tokens ``a`` and ``b`` of tenants of these names, ``operator`` of the operator, and ``more``.

    They have all scopes; ``a-SCOPE`` has that one, and ``a-nothing`` none.
    """
    principals = {tenant: Principal(tenant, EVERYTHING) for tenant in "ab"}
    principals |= {f"a-{scope}": Principal("a", frozenset({scope})) for scope in Scope}
    principals["a-nothing"] = Principal("a", frozenset())
    return ListedAccess({**principals, "operator": Principal(OPERATOR, EVERYTHING), **(more or {})})
