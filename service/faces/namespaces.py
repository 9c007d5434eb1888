"""Register a namespace for a caller."""

from service.access import Principal
from service.faces.questions import NamespaceQuestion
from service.namespaces import Namespace, NamespaceSpec
from service.profiles import Profile, get_profile, profile_from_document
from service.shelf.parts import Parts

DEFAULT_TENANT = "default"
"""Whose a namespace is where nobody says it."""


def register_namespace(
    parts: Parts, principal: Principal, name: str, question: NamespaceQuestion
) -> tuple[Namespace, bool]:
    """The namespace of a name, and whether this call made it. Blocking.

    Raises:
        ProfileError, NamespaceError, NamespaceConflictError, NamespaceLimitError, ScopeError: see there.
    """
    spec = NamespaceSpec(
        tenant=question.tenant or principal.tenant or DEFAULT_TENANT,
        model=question.model,
        weights_revision=question.weights_revision,
        profile=_profile(question),
        block_tokens=question.block_tokens,
        hash_scheme=question.hash_scheme,
        hash_block_tokens=question.hash_block_tokens,
        salt=question.salt,
        shards=question.shards,
    )
    return parts.namespaces.register(principal, name, spec)


def _profile(question: NamespaceQuestion) -> Profile:
    named = question.profile
    profile = get_profile(named) if isinstance(named, str) else profile_from_document(named)
    return profile.miniature(question.bytes_per_token) if question.bytes_per_token is not None else profile
