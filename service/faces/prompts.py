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
from service.settings.limits import LimitSettings
from service.shelf.parts import Parts
from service.shelf.planning import Ask, Planned, make_plan

TOKEN_BYTES = 4
HASH_BYTES = 32
Buffer = bytes | bytearray


class TokenChain:
    """A prompt whose token ids come piece by piece, raw u32 little-endian: of each the keys are kept, and nothing else.

    A million tokens are 4 MB, which many clients would have in memory at a time.

    Args:
        limits: the service's.
        namespace: whose keys are made.
        extra: bytes that go into every hash.
    """

    def __init__(self, limits: LimitSettings, namespace: Namespace, extra: bytes) -> None:
        self._limits, self._namespace, self._extra = limits, namespace, extra
        self._keys = list[bytes]()
        self._rest = b""
        self._count_bytes = 0

    def feed(self, piece: Buffer) -> None:
        """Take the next piece; it may end anywhere. Blocking.

        Raises:
            NamespaceError: see :meth:`Namespace.keys_from_tokens`. InvalidRequestError: the prompt is too long.
        """
        self._count_bytes += len(piece)
        _check_not_too_long(self._count_bytes // TOKEN_BYTES, self._namespace.layout.block_tokens, self._limits)
        joined = memoryview(self._rest + piece if self._rest else piece)
        whole = len(joined) - len(joined) % (self._namespace.layout.block_tokens * TOKEN_BYTES)
        after = self._keys[-1] if self._keys else None
        self._keys += self._namespace.keys_from_tokens(joined[:whole], self._extra, after=after)
        self._rest = bytes(joined[whole:])

    def end(self) -> tuple[int, list[bytes]]:
        """How many tokens came, and the keys of their full blocks.

        Raises:
            NamespaceError: they were no whole number of u32. InvalidRequestError: there were none.
        """
        if self._count_bytes % TOKEN_BYTES:
            raise NamespaceError("tokens", f"have {TOKEN_BYTES} bytes each, got {self._count_bytes} bytes")
        length = self._count_bytes // TOKEN_BYTES
        _check_length(length, self._namespace.layout.block_tokens, self._limits)
        return length, self._keys


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as its token ids, raw u32 little-endian or in a ``chain``, or as the hashes of its full blocks, listed
    or in one buffer.

    ``extra`` goes into every hash that is made here.
    """

    tokens: Buffer | None = None
    chain: TokenChain | None = None
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
    prompt_tokens, keys = _keys(parts.settings.limits, namespace, prompt, question.prompt_tokens)
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


def most_prompt_bytes(limits: LimitSettings, *, is_hashed: bool) -> tuple[int, str]:
    """The longest body of a prompt, and the setting it follows from."""
    if is_hashed:
        return limits.max_prompt_blocks * HASH_BYTES, "limits.max_prompt_blocks"
    return limits.max_prompt_tokens * TOKEN_BYTES, "limits.max_prompt_tokens"


def _keys(limits: LimitSettings, namespace: Namespace, prompt: Prompt, stated: int | None) -> tuple[int, list[bytes]]:
    """The prompt's length and block keys."""
    if prompt.chain is not None:
        return _of_chain(prompt.chain, stated)
    if prompt.tokens is not None:
        chain = TokenChain(limits, namespace, prompt.extra)
        chain.feed(prompt.tokens)
        return _of_chain(chain, stated)
    if prompt.hashes is None:
        raise ProblemError(422, "send either tokens or hashes with prompt_tokens", field="tokens")
    if prompt.extra:
        raise NamespaceError("extra", "goes into hashes that are made here; these came made")
    if stated is None:
        raise InvalidRequestError("prompt_tokens", "is needed with hashes")
    each = namespace.layout.block_tokens // namespace.hashes_per_block
    _check_length(stated, each, limits)
    count = len(prompt.hashes) // HASH_BYTES if isinstance(prompt.hashes, Buffer) else len(prompt.hashes)
    if count != stated // each:
        full = stated // each
        detail = f"a prompt of {stated} tokens has {full} full blocks of {each}, got {count} hashes"
        raise NamespaceError("hashes", detail)
    return stated, namespace.keys_from_hashes(prompt.hashes)


def _of_chain(chain: TokenChain, stated: int | None) -> tuple[int, list[bytes]]:
    length, keys = chain.end()
    if stated not in (None, length):
        raise InvalidRequestError("prompt_tokens", f"is {stated}, but {length} tokens came")
    return length, keys


def _check_length(length: int, block_tokens: int, limits: LimitSettings) -> None:
    """Bound a prompt by its tokens, and by its blocks: each of them is looked up."""
    if not length:
        raise InvalidRequestError("prompt_tokens", f"must be from 1 to {limits.max_prompt_tokens}, got 0")
    _check_not_too_long(length, block_tokens, limits)


def _check_not_too_long(length: int, block_tokens: int, limits: LimitSettings) -> None:
    if length > limits.max_prompt_tokens:
        raise InvalidRequestError("prompt_tokens", f"must be from 1 to {limits.max_prompt_tokens}, got {length}")
    if length // block_tokens > limits.max_prompt_blocks:
        most = limits.max_prompt_blocks
        raise InvalidRequestError(
            "prompt_tokens",
            f"{length} are {length // block_tokens} of {block_tokens}, and limits.max_prompt_blocks is {most}",
        )


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
