"""From a prompt, however it was sent, to a plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.access import Principal
from service.faces.problems import ProblemError
from service.faces.questions import PlanQuestion
from service.namespaces import Namespace, NamespaceError
from service.planner import InvalidRequestError, request_for
from service.planner.base import Ability
from service.settings import LeaseSettings
from service.shelf.parts import Parts
from service.shelf.planning import Ask, Planned, make_plan

TOKEN_BYTES = 4
HASH_BYTES = 32
Buffer = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as its token ids, raw u32 little-endian, or as the hashes of its full blocks, listed or in one buffer.

    ``extra`` goes into every hash that is made here.
    """

    tokens: Buffer | None = None
    hashes: Sequence[bytes] | Buffer | None = None
    extra: bytes = b""


def plan_prompt(
    parts: Parts, principal: Principal, namespace: Namespace, prompt: Prompt, question: PlanQuestion
) -> Planned:
    """Plan a prompt for a caller. Blocking.

    Raises:
        ProblemError: neither tokens nor hashes came.
        NamespaceError, InvalidRequestError, LeaseLimitError: see there.
    """
    prompt_tokens, keys = _keys(parts.settings.limits.max_prompt_tokens, namespace, prompt, question.prompt_tokens)
    request = request_for(
        namespace.layout,
        prompt_tokens,
        allow_approximate=question.allow_approximate,
        supports=_abilities(question.supports),
        hbm_tokens=question.hbm_tokens,
        hbm_exact_tokens=question.hbm_exact_tokens,
        hbm_state=question.hbm_state,
        max_load_bytes_per_saved_token=question.max_load_bytes_per_saved_token,
    )
    request_id = question.request_id or parts.new_id()
    ttl_seconds = _lease_ttl(parts.settings.lease, question.lease_ttl_seconds)
    return make_plan(parts, Ask(namespace, request, keys, request_id, ttl_seconds, principal.tenant))


def _keys(most: int, namespace: Namespace, prompt: Prompt, stated: int | None) -> tuple[int, list[bytes]]:
    """The prompt's length and block keys."""
    if prompt.tokens is not None:
        return _of_tokens(most, namespace, prompt.tokens, prompt.extra, stated)
    if prompt.hashes is None:
        raise ProblemError(422, "send either tokens or hashes with prompt_tokens", field="tokens")
    if prompt.extra:
        raise NamespaceError("extra", "goes into hashes that are made here; these came made")
    if stated is None:
        raise InvalidRequestError("prompt_tokens", "is needed with hashes")
    _check_length(stated, most)
    count = len(prompt.hashes) // HASH_BYTES if isinstance(prompt.hashes, Buffer) else len(prompt.hashes)
    each = namespace.layout.block_tokens // namespace.hashes_per_block
    if count != stated // each:
        full = stated // each
        detail = f"a prompt of {stated} tokens has {full} full blocks of {each}, got {count} hashes"
        raise NamespaceError("hashes", detail)
    return stated, namespace.keys_from_hashes(prompt.hashes)


def _of_tokens(
    most: int, namespace: Namespace, tokens: Buffer, extra: bytes, stated: int | None
) -> tuple[int, list[bytes]]:
    if len(tokens) % TOKEN_BYTES:
        raise NamespaceError("tokens", f"have {TOKEN_BYTES} bytes each, got {len(tokens)} bytes")
    length = len(tokens) // TOKEN_BYTES
    _check_length(length, most)
    if stated not in (None, length):
        raise InvalidRequestError("prompt_tokens", f"is {stated}, but {length} tokens came")
    return length, namespace.keys_from_tokens(tokens, extra)


def _check_length(length: int, most: int) -> None:
    if not 1 <= length <= most:
        raise InvalidRequestError("prompt_tokens", f"must be from 1 to {most}, got {length}")


def _abilities(text: str | None) -> frozenset[Ability] | None:
    if text is None:
        return None
    try:
        return frozenset(Ability(word.strip()) for word in text.split(",") if word.strip())
    except ValueError as error:
        raise InvalidRequestError("supports", f"takes words of {', '.join(Ability)}: {error}") from None


def _lease_ttl(settings: LeaseSettings, asked_seconds: float | None) -> float:
    if asked_seconds is None:
        return settings.ttl_seconds
    if asked_seconds > settings.max_ttl_seconds:
        raise InvalidRequestError("lease_ttl_seconds", f"may be at most {settings.max_ttl_seconds:g}")
    return asked_seconds
