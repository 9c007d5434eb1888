"""Encryption of what is stored."""

from pathlib import Path

from pydantic import Field, model_validator

from service.settings.base import Group


class EncryptionSettings(Group):
    """Encryption at rest, of blocks and snapshots, with a key for each tenant. Off unless keys are named."""

    key_file: Path | None = Field(None, description="TOML file with the tenants' keys. Turns encryption on.")
    key_command: tuple[str, ...] = Field(
        (), max_length=64, description="Program, with its arguments, that prints such a file. Turns encryption on."
    )
    command_seconds: float = Field(10.0, gt=0, le=600, description="Longest run of the key command.")
    refresh_seconds: float = Field(
        60.0, ge=1, le=86_400, description="How often the keys are read again; a broken file changes nothing."
    )

    @property
    def is_on(self) -> bool:
        """Whether records are sealed."""
        return self.key_file is not None or bool(self.key_command)

    @model_validator(mode="after")
    def _has_one_source(self) -> "EncryptionSettings":
        if self.key_file is not None and self.key_command:
            raise ValueError("encryption.key_file and encryption.key_command exclude each other")
        return self
