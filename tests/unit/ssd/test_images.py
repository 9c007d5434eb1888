"""Memory that is lent: aligned, used again, and never while anybody can see it."""

import ctypes
import gc

import pytest

from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, padded_bytes
from storage.ssd.images import MOST_SPARE_BYTES, SLAB_BYTES, Images, image_around, payload_in

BLOCK_BYTES = 113_920


def address_of(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.mark.parametrize("length", [0, 1, PAGE_BYTES - HEADER_BYTES, PAGE_BYTES, BLOCK_BYTES, SLAB_BYTES + 1])
def test_an_image_is_whole_pages_at_the_start_of_one(length: int) -> None:
    image = Images().take(length)
    assert len(image) == padded_bytes(length)
    assert address_of(image) % PAGE_BYTES == 0


def test_memory_is_used_again_once_the_last_view_of_it_is_gone() -> None:
    images = Images()
    image = images.take(BLOCK_BYTES)
    address = address_of(image)
    deep = memoryview(image[HEADER_BYTES:])[100:200]
    del image
    others = [images.take(BLOCK_BYTES) for _ in range(2 * SLAB_BYTES // BLOCK_BYTES)]
    assert address not in map(address_of, others), "a slice of a slice still sees it"
    del deep, others
    gc.collect()
    assert address in [address_of(images.take(BLOCK_BYTES)) for _ in range(1)] or images.held_bytes > SLAB_BYTES


def test_no_two_images_share_memory() -> None:
    images = Images()
    taken = [images.take(BLOCK_BYTES) for _ in range(100)]
    for number, image in enumerate(taken):
        image[:] = bytes([number]) * len(image)
    assert all(image == bytes([number]) * len(image) for number, image in enumerate(taken))


def test_what_a_burst_needs_is_kept_for_the_next_one_and_given_up_once_none_comes() -> None:
    images = Images(spare_bytes=2 * SLAB_BYTES)
    count = 7 * SLAB_BYTES // BLOCK_BYTES
    for _ in range(3):
        taken = [images.take(BLOCK_BYTES) for _ in range(count)]
        held_bytes = images.held_bytes
        assert 6 * SLAB_BYTES <= held_bytes <= 8 * SLAB_BYTES
        taken.clear()
        images.give_up_idle()
        assert images.held_bytes == held_bytes, "all of it was needed since the last look"
    images.give_up_idle()
    assert images.held_bytes <= 3 * SLAB_BYTES


def test_no_more_is_kept_than_is_spare_at_the_most() -> None:
    images = Images()
    taken = [images.take(BLOCK_BYTES) for _ in range(20 * SLAB_BYTES // BLOCK_BYTES)]
    assert images.held_bytes >= 19 * SLAB_BYTES
    taken.clear()
    images.take(BLOCK_BYTES)
    assert images.held_bytes <= MOST_SPARE_BYTES + SLAB_BYTES
    scattered = [images.take(BLOCK_BYTES) for _ in range(20 * SLAB_BYTES // BLOCK_BYTES)]
    del scattered[::2]
    images.take(BLOCK_BYTES)
    assert images.held_bytes >= 19 * SLAB_BYTES, "a slab that is used in part stays"
    del scattered
    images.take(BLOCK_BYTES)
    assert images.held_bytes <= MOST_SPARE_BYTES + SLAB_BYTES


def test_what_is_still_used_is_not_given_up_nor_what_was_needed_for_a_moment() -> None:
    images = Images(spare_bytes=0)
    taken = [images.take(BLOCK_BYTES) for _ in range(10 * SLAB_BYTES // BLOCK_BYTES)]
    half = len(taken) // 2
    del taken[half:]
    images.give_up_idle()
    images.give_up_idle()
    assert 5 * SLAB_BYTES <= images.held_bytes <= 6 * SLAB_BYTES
    taken += [images.take(BLOCK_BYTES) for _ in range(half)]
    del taken[half:]
    images.give_up_idle()
    assert images.held_bytes >= 9 * SLAB_BYTES
    for number, image in enumerate(taken):
        image[:] = bytes([number]) * len(image)
    assert all(image == bytes([number]) * len(image) for number, image in enumerate(taken))


def test_the_image_around_a_payload_is_found_by_the_whole_payload_alone() -> None:
    image = Images().take(1000)
    payload = payload_in(image, 1000)
    payload[:] = b"p" * 1000
    around = image_around(payload)
    assert around is not None
    assert len(around) == PAGE_BYTES
    assert payload_in(around, 1000) == payload
    assert image_around(payload[1:]) is None
    assert image_around(payload[:-1]) is None
    assert image_around(b"p" * 1000) is None
    assert image_around(memoryview(bytearray(1000))) is None
