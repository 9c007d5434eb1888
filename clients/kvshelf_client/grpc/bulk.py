"""The two verbs that carry bulk, a fetch and a store: begun by one thread, and finished by one that may wait."""

from collections.abc import Iterable, Iterator
from typing import Any

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import AnswerError, UnreachableError
from kvshelf_client.grpc.channel import Channel
from kvshelf_client.grpc.chunks import CHUNK_BYTES, pack_store_chunk, read_frame_chunk
from kvshelf_client.grpc.codec import GrpcRequest
from kvshelf_client.grpc.incoming import Incoming
from kvshelf_client.grpc.landing import FrameFeed
from kvshelf_client.requests import Fetch, Store
from kvshelf_client.upload import frame_parts


class Download:
    """A fetch under way.

    Args:
        max_payload_bytes: a frame that announces more is refused before memory is taken for it.
    """

    def __init__(
        self, channel: Channel, request: Fetch, sent: GrpcRequest, deadline: Deadline, max_payload_bytes: int
    ) -> None:
        self._incoming = Incoming(channel.download(sent, deadline, request.call_id), deadline)
        self._feed = FrameFeed(request.sink, max_payload_bytes, self._incoming.check)
        self.cancel = self._incoming.cancel

    def finish(self) -> None:
        """Read it into its sink. Whatever ends it early ends the call."""
        announced = received = 0
        try:
            for number, message in enumerate(self._incoming):
                length_bytes, _, frames = read_frame_chunk(message)
                announced = length_bytes if number == 0 else announced
                received += len(frames)
                self._feed.feed(frames)
        except BaseException:  # The sink may have refused a frame, or the caller been interrupted.
            self.cancel()
            raise
        self._feed.end()
        if received != announced:
            raise UnreachableError(f"{received} bytes of frames came, not {announced}")


class Upload:
    """A store under way.

    For gRPC it is a stream of answers, too, though one comes: it loses calls of many messages and one answer
    (docs/decisions/0039).
    """

    def __init__(self, channel: Channel, request: Store, sent: GrpcRequest, deadline: Deadline) -> None:
        self._failures: list[Exception] = []
        self._sent = sent
        chunks = _until_failure(store_chunks(request, sent.message), self._failures)
        self._incoming = Incoming(channel.upload(sent, chunks, deadline, request.call_id), deadline)
        self.cancel = self._incoming.cancel

    def finish(self) -> Any:
        """The decoded answer. Raises what went wrong with the records, such as a payload that is in pieces."""
        try:
            answer = next(self._incoming, None)
            if next(self._incoming, None) is not None:
                raise AnswerError("more than one answer to a store")
        except BaseException:  # The caller may have been interrupted.
            self.cancel()
            raise
        finally:
            if self._failures:
                raise self._failures[0]
        return self._sent.decode(answer)


def store_chunks(request: Store, start: bytes) -> Iterator[bytes]:
    """A store as encoded messages of about ``CHUNK_BYTES``, the first with the start."""
    gathered: list[bytearray | memoryview] = []
    room = CHUNK_BYTES
    head: bytes | None = start
    for part in frame_parts(request.records):
        rest = memoryview(part)
        while rest:
            piece, rest = rest[:room], rest[room:]
            gathered.append(piece)
            room -= len(piece)
            if not room:
                yield pack_store_chunk(gathered, start=head)
                gathered, room, head = [], CHUNK_BYTES, None
    if gathered or head is not None:
        yield pack_store_chunk(gathered, start=head)


def _until_failure(chunks: Iterable[bytes], failures: list[Exception]) -> Iterator[bytes]:
    """Chunks for gRPC's thread, which would log what goes wrong and tell nobody: it ends, and the caller is told."""
    try:
        yield from chunks
    except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
        failures.append(error)
