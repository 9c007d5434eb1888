"""Who may do what: from a token to a tenant and its scopes. Every face asks here and nowhere else."""

from service.access.base import (
    ANYBODY,
    OPERATOR,
    Access,
    AccessDeniedError,
    Principal,
    Scope,
    ScopeError,
)
from service.access.guarded import GuardedAccess
from service.access.tokens import TokenFileError
from service.access.unguarded import UnguardedAccess

__all__ = [
    "ANYBODY",
    "OPERATOR",
    "Access",
    "AccessDeniedError",
    "GuardedAccess",
    "Principal",
    "Scope",
    "ScopeError",
    "TokenFileError",
    "UnguardedAccess",
]
