"""A prompt whose tokens come in pieces has the keys that it has as a whole, and the same bounds."""

import random
from itertools import pairwise

import pytest

from kvshelf_client.hashing import block_keys
from service.faces.prompts import TokenChain
from service.namespaces import NamespaceError
from service.planner import InvalidRequestError
from service.settings.limits import LimitSettings
from tests.support.namespaces import namespace

BLOCK_BYTES = 4 * 128
LIMITS = LimitSettings(max_prompt_tokens=50 * 128 + 5, max_prompt_blocks=20)


def chain_of(*pieces: bytes, extra: bytes = b"") -> TokenChain:
    """The chain of a prompt that came in pieces."""
    chain = TokenChain(LIMITS, namespace(), extra)
    for piece in pieces:
        chain.feed(bytearray(piece))
    return chain


@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 256, 20 * 128, 20 * 128 + 127])
@pytest.mark.parametrize("extra", [b"", b"adapter"])
def test_wherever_it_is_cut_the_keys_are_the_same(tokens: int, extra: bytes) -> None:
    chance = random.Random(tokens)
    prompt = chance.randbytes(4 * tokens)
    expected = block_keys(namespace().fingerprint, prompt, 128, extra)
    assert len(expected) == tokens // 128
    for most in (1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(prompt)):
        cuts = sorted({0, len(prompt), *(chance.randrange(len(prompt)) for _ in range(len(prompt) // most))})
        pieces = [prompt[start:end] for start, end in pairwise(cuts)]
        assert chain_of(*pieces, extra=extra).end() == (tokens, expected)


def test_no_tokens_are_no_prompt() -> None:
    for chain in (chain_of(), chain_of(b"")):
        with pytest.raises(InvalidRequestError, match="must be from 1"):
            chain.end()


def test_tokens_are_whole() -> None:
    assert chain_of(bytes(3), bytes(1)).end() == (1, [])
    with pytest.raises(NamespaceError, match="4 bytes each, got 6 bytes"):
        chain_of(bytes(3), bytes(3)).end()


def test_a_prompt_over_the_bounds_is_refused_before_more_of_it_is_hashed() -> None:
    chain = chain_of(bytes(20 * BLOCK_BYTES), bytes(BLOCK_BYTES - 4))
    with pytest.raises(InvalidRequestError, match=r"are 21 of 128, and limits\.max_prompt_blocks is 20"):
        chain.feed(bytes(4))
    roomy = TokenChain(LimitSettings(max_prompt_tokens=200), namespace(), b"")
    roomy.feed(bytes(800))
    with pytest.raises(InvalidRequestError, match="must be from 1 to 200, got 201"):
        roomy.feed(bytes(4))
    assert chain_of(bytes(20 * BLOCK_BYTES), bytes(BLOCK_BYTES - 4)).end()[0] == 21 * 128 - 1


def test_an_engine_s_own_hashes_cannot_be_made_here() -> None:
    chain = TokenChain(LIMITS, namespace(hash_scheme="vllm-sha256", hash_block_tokens=64), b"")
    with pytest.raises(NamespaceError, match="send its hashes"):
        chain.feed(bytes(BLOCK_BYTES))
