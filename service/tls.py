"""Encryption on the way: one context for every connection, whose certificate may be renewed while it serves."""

import ssl
from pathlib import Path

import structlog

from service.settings import TlsSettings

_LOG = structlog.get_logger("kvshelf.tls")


class TlsError(OSError):
    """The certificate, its key or the authorities cannot be used; the text says which file and why."""


class ServerTls:
    """TLS 1.2 at least, with the settings' files as they are when a connection is made.

    Connections that were made with an earlier certificate go on. ``context`` is the one that the server is given; each
    hand-shake takes place in the newest one, so that what is renewed is renewed as a whole.

    Args:
        settings: names a certificate and its key.

    Raises:
        TlsError: see there.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._loaded = self._read()
        self._newest = self.context = self._make_context()
        self.context.sni_callback = self._hand_over
        self._is_in_trouble = False

    @property
    def files(self) -> list[bytes]:
        """What the newest context was made of: certificate, key, and the clients' authorities where they must show one.

        For a server that makes its own context.
        """
        return self._loaded

    def refresh(self) -> None:
        """Take a renewed certificate over. One that cannot be used changes nothing, and is tried again next time."""
        try:
            current = self._read()
            if current != self._loaded:
                # Files are never renewed at one moment: until they fit, this raises.
                self._newest = self._make_context()
                self._loaded = current
                _LOG.info("certificate_renewed")
            self._is_in_trouble = False
        except TlsError as error:
            if not self._is_in_trouble:
                _LOG.error("certificate_unusable", reason=str(error))
            self._is_in_trouble = True

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would not show its certificate again, to an authority that may be gone.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        cert, key, client_ca = self._files()
        try:
            context.load_cert_chain(cert, key, password=_no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsError(f"tls.cert_file {cert} with tls.key_file {key}: {_reason(error)}") from None
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as error:
                raise TlsError(f"tls.client_ca_file {client_ca}: {_reason(error)}") from None
        return context

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._newest

    def _files(self) -> tuple[Path, Path, Path | None]:
        cert, key = self._settings.cert_file, self._settings.key_file
        if cert is None or key is None:
            raise ValueError("TLS takes a certificate and its key")
        return cert, key, self._settings.client_ca_file

    def _read(self) -> list[bytes]:
        try:
            return [path.read_bytes() for path in self._files() if path is not None]
        except OSError as error:
            raise TlsError(f"tls: {error.filename} cannot be read: {error.strerror}") from None


def _no_passphrase() -> str:
    """Asking on the terminal would hang the start."""
    raise ValueError("the key has a passphrase; it takes one without")


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
