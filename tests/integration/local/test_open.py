"""What OPEN, READ and RENEW answer: the places of what a lease holds, and nothing but that."""

import pytest

from kvshelf_client.frames import FrameKind
from kvshelf_client.local.loading import in_memory, load
from kvshelf_client.local.peer import RefusedError
from kvshelf_client.local.wire import KEY, LENGTH, MAX_DESCRIPTORS, OFFSET, Open, Refusal
from kvshelf_client.words import MissReason, RecordClass
from storage.ssd import SsdTier
from tests.integration.local.conftest import open_files
from tests.integration.ssd.test_damage import flip
from tests.support.local import Collector, LocalFace, do, soon
from tests.support.served import eventually
from tests.support.service import register
from tests.support.shelf import BLOCK, EXACT, KEYS, REPLAYED, fetch, fill, payload_of, plan

BLOCKS = RecordClass.BLOCK
PROMPT = 10 * BLOCK + 300


def read_places(face: LocalFace, lease_id: str, shard: int | None = None) -> list[bytes]:
    """The payloads of a lease's blocks, from where the face says that they are."""
    with face.peer() as peer:
        opened = face.open(peer, lease_id, shard)
        return [
            bytes(segment.view(one[OFFSET], one[LENGTH]))
            for one, segment in zip(opened.ranges, opened.segments, strict=True)
        ]


def test_the_blocks_of_a_lease_are_where_it_says(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(11))
    lease = plan(face.parts, namespace, PROMPT).lease
    with face.peer() as peer:
        opened = face.open(peer, lease.lease_id)
    assert [one[KEY] for one in opened.ranges] == KEYS[:11]
    assert not opened.fell_back
    assert read_places(face, lease.lease_id) == [payload_of(BLOCKS, number, 0, 128) for number in range(11)]
    frames = fetch(face.parts, lease)
    with face.peer() as peer:
        sink = Collector()
        opened = do(peer.open(Open(lease.lease_id, 0, False), sink, face.segments, soon()))
        assert in_memory(opened) == [True] * 11
        do(load(lease.lease_id, opened, sink, peer, soon()))
    assert sink.frames == frames, "the same as over HTTP"


def test_every_shard_alone_and_all_in_order(face: LocalFace) -> None:
    namespace = register(face.parts, shards=4)
    fill(face.parts, namespace, BLOCKS, range(4))
    lease = plan(face.parts, namespace, 4 * BLOCK + 200).lease
    expected = [[bytes(payload_of(BLOCKS, number, shard, 32)) for number in range(4)] for shard in range(4)]
    for shard in range(4):
        assert read_places(face, lease.lease_id, shard) == expected[shard]
    assert read_places(face, lease.lease_id) == [one for each in expected for one in each]
    with face.peer() as peer, pytest.raises(RefusedError) as refused:
        face.open(peer, lease.lease_id, 4)
    assert refused.value.reason is Refusal.OUT_OF_RANGE


def test_a_snapshot_comes_along_and_a_fallback_when_it_is_gone(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(10))
    fill(face.parts, namespace, RecordClass.SNAPSHOT, [6])
    lease = plan(face.parts, namespace, PROMPT, allow_approximate=False).lease
    assert lease.snapshot is not None
    assert lease.fallback is not None
    with face.peer() as peer:
        sink = Collector()
        opened = do(peer.open(Open(lease.lease_id, 0, False), sink, face.segments, soon()))
        assert [frame.header.kind for frame in sink.frames] == [FrameKind.SNAPSHOT]
        assert sink.sound == [True]
        assert (opened.fell_back, len(opened.ranges)) == (False, 7)
        sink = Collector()
        again = do(peer.open(Open(lease.lease_id, 0, True), sink, face.segments, soon()))
        assert [frame.header.kind for frame in sink.frames] == [FrameKind.FALLBACK]
        assert again.fell_back
        # The blocks of the plan that the first answer was of can still be read by number.
        sink = Collector()
        do(peer.read(lease.lease_id, opened, range(2, 5), sink, soon()))
        assert [frame.header.key for frame in sink.frames] == KEYS[2:5]


def test_read_sends_the_blocks_that_are_asked_for(face: LocalFace) -> None:
    namespace = register(face.parts, shards=2)
    fill(face.parts, namespace, BLOCKS, range(6))
    lease = plan(face.parts, namespace, 6 * BLOCK + 200).lease
    everything = fetch(face.parts, lease)
    with face.peer() as peer:
        opened = face.open(peer, lease.lease_id)
        for numbers in (range(6), range(2, 3), range(6, 12), range(7, 11)):
            sink = Collector()
            do(peer.read(lease.lease_id, opened, numbers, sink, soon()))
            assert sink.frames == everything[numbers.start : numbers.stop]
        opened.ranges += opened.ranges[-1:]
        with pytest.raises(RefusedError) as refused:
            do(peer.read(lease.lease_id, opened, range(11, 13), Collector(), soon()))
        assert refused.value.reason is Refusal.OUT_OF_RANGE


def test_read_finds_and_drops_what_is_damaged(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(5))
    lease = plan(face.parts, namespace, 5 * BLOCK + 200).lease
    with face.peer() as peer:
        opened = face.open(peer, lease.lease_id)
        flip(sorted((face.server.path.parent / "shelf/segments").glob("*.seg"))[0], opened.ranges[3][OFFSET] + 5)
        sink = Collector()
        do(load(lease.lease_id, opened, sink, peer, soon()))
    assert [frame.header.key for frame in sink.frames] == [*KEYS[:4], KEYS[3], KEYS[4]], "it is asked of the service"
    assert sink.sound == [True, True, True, False, True, True]
    assert sink.frames[4].header.miss is MissReason.CORRUPT
    again = plan(face.parts, namespace, 5 * BLOCK + 200).lease
    assert len(again.keys) == 3, "the service has dropped it"


def test_what_is_no_lease_of_this_asker(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(3))
    lease = plan(face.parts, namespace, 3 * BLOCK + 200, lease_ttl_seconds=10).lease
    with face.peer() as peer:
        assert do(peer.renew(lease.lease_id, soon())) == 10
        face.clock.advance(9)
        assert do(peer.renew(lease.lease_id, soon())) == 10
        face.clock.advance(10)
        for ask in (lambda: face.open(peer, lease.lease_id), lambda: do(peer.renew(lease.lease_id, soon()))):
            with pytest.raises(RefusedError) as refused:
                ask()
            assert refused.value.reason is Refusal.UNKNOWN_LEASE
        with pytest.raises(RefusedError):
            face.open(peer, "x" * 100)


def test_nothing_to_load_is_an_empty_answer(face: LocalFace) -> None:
    namespace = register(face.parts)
    lease = plan(face.parts, namespace, 300).lease
    with face.peer() as peer:
        opened = face.open(peer, lease.lease_id)
        assert (opened.ranges, in_memory(opened)) == ([], [])
        do(load(lease.lease_id, opened, Collector(), peer, soon()))


def test_no_descriptor_is_left_behind(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(8))
    lease = plan(face.parts, namespace, 8 * BLOCK + 200).lease
    with face.peer() as peer:
        for _ in range(50):
            face.open(peer, lease.lease_id)
            with pytest.raises(RefusedError):
                face.open(peer, "unknown")
        # The tier has the file open, and the mapping has. The face closes its own once it has sent them.
        assert eventually(lambda: sum(one.endswith(".seg") for one in open_files()) == 2, within_seconds=5)


def test_many_files_make_several_messages(face: LocalFace) -> None:
    """More files than one message may have descriptors: the tier's segments are 1 MiB here, so this needs some."""
    tier = face.parts.blocks
    assert isinstance(tier, SsdTier)
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(300))
    lease = plan(face.parts, namespace, 300 * BLOCK + 200).lease
    payloads = read_places(face, lease.lease_id)
    assert payloads == [bytes(payload_of(BLOCKS, number, 0, 128)) for number in range(300)]
    assert len(face.segments) <= MAX_DESCRIPTORS


def test_replayed_blocks_say_so(face: LocalFace) -> None:
    namespace = register(face.parts)
    fill(face.parts, namespace, BLOCKS, range(2), provenance=EXACT)
    fill(face.parts, namespace, BLOCKS, range(2, 4), provenance=REPLAYED)
    lease = plan(face.parts, namespace, 4 * BLOCK + 200).lease
    with face.peer() as peer:
        opened = face.open(peer, lease.lease_id)
        sink = Collector()
        do(load(lease.lease_id, opened, sink, peer, soon()))
    assert [frame.header.provenance for frame in sink.frames] == [EXACT, EXACT, REPLAYED, REPLAYED]
