"""A client of the local path in a process of its own, to be stopped and killed; see tests/integration/local.

``python -m tests.support.local_client SOCKET INSTANCE`` connects and does as it is told, a word a line: ``open LEASE``;
``load``, all blocks once; ``loop``, the same until the next word comes. It answers each in a line of JSON: how many
blocks were ``sound``, how many of those were ``wrong`` all the same (not the bytes that follow from their key), how
many were ``unsound``, and how many ``missed``.
"""

import json
import random
import select
import sys
from collections import Counter
from collections.abc import Mapping

from kvshelf_client.answers import LocalAddress
from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import FrameHeader, checksum_of
from kvshelf_client.http.steps import wait
from kvshelf_client.local.loading import load
from kvshelf_client.local.peer import Opened, greet
from kvshelf_client.local.segments import Segments
from kvshelf_client.local.wire import PROTOCOL_VERSION, Open
from kvshelf_client.steps import run


def payload_of(key: bytes, size: int) -> bytes:
    """The payload that follows from a key."""
    return random.Random(key).randbytes(size)


class Judge:
    """A sink that holds what it takes for good against what it should be."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._expected: dict[bytes, bytes] = {}

    def expect(self) -> None:
        """See :meth:`Sink.expect`: there is nothing to make ready."""

    def begin(self, header: FrameHeader) -> memoryview:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        self._header = header
        self._payload = bytearray(header.length_bytes)
        return memoryview(self._payload)

    def restart(self) -> None:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        self.seen.clear()

    def finish(self) -> None:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""

    def end(self) -> bool:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        key = self._header.key
        if self._header.miss is not None:
            self.seen["missed"] += 1
            return True
        is_sound = checksum_of(self._payload) == self._header.checksum
        self.seen["sound" if is_sound else "unsound"] += 1
        if is_sound:
            expected = self._expected.setdefault(key, payload_of(key, len(self._payload)))
            self.seen["wrong"] += self._payload != expected
        return is_sound


def main() -> None:
    """The process."""
    address = LocalAddress(PROTOCOL_VERSION, sys.argv[1], bytes.fromhex(sys.argv[2]))
    peer = run(greet(address, None, 1 << 24, Deadline(60)), wait)
    lease_id, opened, segments = "", Opened(), Segments()
    _say({"ready": 1})
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        judge = Judge()
        if word == "open":
            lease_id = argument
            opened = run(peer.open(Open(lease_id, None, False), judge, segments, Deadline(60)), wait)
            _say({"opened": len(opened.ranges)})
            continue
        run(load(lease_id, opened, judge, peer, Deadline(60)), wait)
        while word == "loop" and not select.select([sys.stdin], [], [], 0)[0]:
            run(load(lease_id, opened, judge, peer, Deadline(60)), wait)
        _say(judge.seen)


def _say(what: Mapping[str, int]) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 - it is read by the test


if __name__ == "__main__":
    main()
