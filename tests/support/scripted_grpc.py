"""A fake gRPC service that misbehaves by script: it takes any call, and answers it as it is told."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

Script = Callable[[Iterator[bytes]], Iterator[bytes]]
"""From the encoded messages of a call to those of its answer; the call ends well when they end."""


class _AnyVerb(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, script: Script) -> None:
        self._script = script

    def service(self, _: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(lambda messages, _: self._script(messages))


@contextmanager
def scripted_grpc(script: Script) -> Iterator[str]:
    """Serve it; the address, as ``grpc://``."""
    threads = ThreadPoolExecutor(16)
    server = grpc.server(threads)
    server.add_generic_rpc_handlers((_AnyVerb(script),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        threads.shutdown()


def answering(*answers: bytes) -> Script:
    """Take all that comes, then answer so."""

    def script(messages: Iterator[bytes]) -> Iterator[bytes]:
        for _ in messages:
            pass
        yield from answers

    return script
