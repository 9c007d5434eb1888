"""Encryption on the way, of every face that listens on the network."""

from pathlib import Path

from pydantic import Field, model_validator

from service.settings.base import Group


class TlsSettings(Group):
    """Encryption on the way. TLS 1.2 at least; files in PEM format, read again when they change."""

    cert_file: Path | None = Field(None, description="The service's certificate, with its chain. Turns TLS on.")
    key_file: Path | None = Field(None, description="The key of the certificate, without a passphrase.")
    client_ca_file: Path | None = Field(
        None, description="Authorities of client certificates; with it every client must show one."
    )

    @property
    def is_on(self) -> bool:
        """Whether connections are encrypted."""
        return self.cert_file is not None

    @model_validator(mode="after")
    def _is_whole(self) -> "TlsSettings":
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls.cert_file and tls.key_file go together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("tls.client_ca_file takes tls.cert_file and tls.key_file")
        return self
