"""The gRPC server itself: its options, its health and reflection, its start and its stop."""

import grpc
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from service.faces.context import Context
from service.faces.prompts import HASH_BYTES
from service.grpc.gate import SERVICE, Gate
from service.settings import Settings
from service.tls import ServerTls

MESSAGE_SLACK_BYTES = 64 << 10
"""What a message may have beside the prompt or the keys in it."""
STREAM_SLACK = 100
"""A connection may have so many calls more than are served: those are refused, instead of waiting unseen."""
FRAME_BYTES = 1 << 20
"""HTTP/2 frames as large as the messages: with the default of 16 KiB a fetch takes a third longer."""
IDLE_STALLS = 40
"""A connection without a call is closed after so many times ``limits.stall_seconds``. Not at once: clients note it."""


class GrpcFace:
    """The face ``kvshelf.v1`` on a port of its own. All methods belong to the event loop of the service.

    Args:
        context: the threads, the gate and the parts it shares with the other faces.
        tls: for encrypted connections; None for plain ones.
    """

    def __init__(self, context: Context, tls: ServerTls | None) -> None:
        self._context = context
        self._tls = tls
        self._settings = context.parts.settings
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server: grpc.aio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen; ``url`` is where from then on.

        Raises:
            OSError: the address cannot be bound.
        """
        max_calls = self._settings.grpc.max_calls
        gate = Gate(self._context, max_calls)
        # What does not come by the gate, such as who watches health, is bounded here.
        self._server = grpc.aio.server(
            options=_options(self._settings), maximum_concurrent_rpcs=2 * max_calls + STREAM_SLACK
        )
        self._server.add_generic_rpc_handlers((gate.handlers(),))
        add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        host, port = self._settings.server.host, self._settings.grpc.port
        place = f"[{host}]" if ":" in host else host
        try:
            if self._tls is None:
                taken = self._server.add_insecure_port(f"{place}:{port}")
            else:
                taken = self._server.add_secure_port(f"{place}:{port}", _credentials(self._tls))
        except RuntimeError:
            raise OSError(f"cannot listen on {host} port {port} for gRPC") from None
        for name in (health.OVERALL_HEALTH, SERVICE.full_name):
            await self._health.set(name, HealthCheckResponse.SERVING)
        gate.port = taken
        await self._server.start()
        self.url = f"{'grpc' if self._tls is None else 'grpcs'}://{place}:{taken}"

    async def drain(self) -> None:
        """Say that nothing new is taken; the gate refuses it."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_seconds: float) -> None:
        """Close all connections; calls under way have ``grace_seconds`` to end."""
        if self._server is not None:
            await self._server.stop(grace_seconds)


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """The certificate in force, asked for at each hand-shake. A renewed one is taken over as it is on REST."""
    given = tls.files

    def configuration() -> grpc.ServerCertificateConfiguration:
        cert, key, *authorities = given
        return grpc.ssl_server_certificate_configuration([(key, cert)], *authorities)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """What to use from now on; None where nothing has changed."""
        nonlocal given
        if tls.files == given:
            return None
        given = tls.files
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(),
        renewed,  # type: ignore[arg-type]  # None says that nothing has changed, which the stubs do not know.
        require_client_authentication=len(given) > 2,
    )


def _options(settings: Settings) -> list[tuple[str, int]]:
    limits = settings.limits
    prompt_bytes = limits.max_prompt_tokens * HASH_BYTES
    stall_milliseconds = int(limits.stall_seconds * 1000)
    keys_bytes = limits.max_list_items * 2 * HASH_BYTES
    return [
        ("grpc.max_receive_message_length", max(prompt_bytes, keys_bytes, limits.max_json_bytes) + MESSAGE_SLACK_BYTES),
        ("grpc.max_concurrent_streams", settings.grpc.max_calls + STREAM_SLACK),
        ("grpc.http2.max_frame_size", FRAME_BYTES),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", stall_milliseconds),
        ("grpc.max_connection_idle_ms", IDLE_STALLS * stall_milliseconds),
        # A peer that is gone without a word, or reads nothing at all, is noticed by these.
        ("grpc.keepalive_time_ms", stall_milliseconds),
        ("grpc.keepalive_timeout_ms", stall_milliseconds),
        ("grpc.so_reuseport", 0),
    ]
