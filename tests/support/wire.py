"""What a service would put on the wire: plans and frames of one small prompt, made by hand."""

from kvshelf_client.answers import Lease, Load, Namespace, PlanAnswer, Resume
from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.hashing import block_keys
from kvshelf_client.plans import Plan, plan_of
from kvshelf_client.requests import AskPlan
from kvshelf_client.words import Provenance

BLOCK_TOKENS, BLOCK_BYTES, SNAPSHOT_BYTES, WINDOW = 64, 640, 1280, 64
NAMESPACE = Namespace(
    "n", bytes(32), BLOCK_TOKENS, 1, 1, BLOCK_BYTES, SNAPSHOT_BYTES, WINDOW, 20, 0, "kvshelf-sha256", created=False
)
TOKENS = bytes(4 * 1000)
KEYS = block_keys(NAMESPACE.fingerprint, TOKENS, BLOCK_TOKENS)


def resume(
    mode: str = "bounded_replay", blocks: int = 4, *, snapshot: bool = False, held: int = 0, plan_id: str = "p1"
) -> Resume:
    """A plan that uses the first ``blocks`` blocks and holds ``held`` of them; with a snapshot it is exact."""
    matched = blocks * BLOCK_TOKENS
    start = matched - (WINDOW if mode == "bounded_replay" else 0)
    load = Load(
        held * BLOCK_TOKENS,
        matched,
        matched if snapshot else None,
        (blocks - held) * BLOCK_BYTES,
        SNAPSHOT_BYTES * snapshot,
    )
    sources = {"hbm": held * BLOCK_TOKENS, "dram": 0, "ssd": start - held * BLOCK_TOKENS, "replay": matched - start}
    return Resume(
        plan_id=plan_id,
        mode=mode,
        exact=mode != "bounded_replay",
        prompt_tokens=1000,
        matched_tokens=matched,
        run_start=start,
        write_floor=matched,
        decoder_run_start=1000,
        replayed_tokens=matched - start,
        saved_tokens=start,
        held_tokens=held * BLOCK_TOKENS,
        load=load,
        tokens_by_source={**sources, "prefill": 1000 - matched},
    )


def snapshot_answer(blocks: int = 4, fallback_blocks: int = 4) -> PlanAnswer:
    """A plan with a snapshot at the end of its blocks, and its fallback."""
    fallback = resume(blocks=fallback_blocks, plan_id="p2")
    primary = resume("snapshot", blocks, snapshot=True)
    return PlanAnswer("r", primary, fallback, Lease("l1", 60.0, blocks + 1), 960, 960, None, None)


def plan_for(answer: PlanAnswer, namespace: Namespace = NAMESPACE) -> Plan:
    """The plan a client makes of an answer."""
    return plan_of(namespace, AskPlan(namespace.name, 1000, answer.request_id, TOKENS), answer)


def payload_of(number: int, length_bytes: int = BLOCK_BYTES) -> bytes:
    """The bytes of block ``number``, all over different."""
    return bytes((number * 31 + at) % 251 for at in range(length_bytes))


def block_frame(number: int, **changes: object) -> bytes:
    """The frame of block ``number``, exact, with changes to its header."""
    payload = payload_of(number)
    header = FrameHeader(
        FrameKind.BLOCK,
        KEYS[number],
        len(payload),
        checksum_of(payload),
        Provenance.EXACT,
        0,
        (number + 1) * BLOCK_TOKENS,
        7,
    )
    return pack_header(header._replace(**changes)) + payload  # type: ignore[arg-type]


def snapshot_frame(blocks: int = 4, **changes: object) -> bytes:
    """The frame of the snapshot at the end of so many blocks."""
    payload = payload_of(100, SNAPSHOT_BYTES)
    header = FrameHeader(
        FrameKind.SNAPSHOT,
        KEYS[blocks - 1],
        len(payload),
        checksum_of(payload),
        Provenance.EXACT,
        0,
        blocks * BLOCK_TOKENS,
        7,
    )
    return pack_header(header._replace(**changes)) + payload  # type: ignore[arg-type]


def fallback_frame(document: bytes = b'{"plan_id": "p2"}') -> bytes:
    """The frame that says that the fallback follows; a client needs no more of it than the plan's id."""
    return pack_header(FrameHeader(FrameKind.FALLBACK, bytes(32), len(document), checksum_of(document))) + document
