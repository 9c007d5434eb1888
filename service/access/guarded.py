"""Access by the tokens of a file, which may change while the service runs."""

import hmac
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from service.access.base import Access, AccessDeniedError, Principal
from service.access.tokens import MAX_FILE_BYTES, Token, TokenFileError, digest_of, read_tokens
from storage.clock import Clock

_NOBODY: Final = bytes(32)
_LOG = structlog.get_logger("kvshelf.access")


class GuardedAccess(Access):
    """Takes the tokens of a file. A new file takes effect with :meth:`refresh`; one that is broken changes nothing.

    Args:
        path: the file; see :mod:`service.access.tokens`.
        clock: when tokens expire.
        denied: told why a token was not taken, each time: ``missing``, ``unknown`` or ``expired``.

    Raises:
        TokenFileError: the file cannot be read or used.
    """

    def __init__(self, path: Path, clock: Clock, *, denied: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._clock = clock
        self._denied = denied
        self._trouble: str | None = None
        self._data = self._read()
        self._tokens = self._by_selector(self._data)

    @property
    def is_guarded(self) -> bool:
        """True."""
        return True

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens in force, expired ones too."""
        return tuple(self._tokens.values())

    def authenticate(self, token: str | None) -> Principal:
        """See :meth:`Access.authenticate`.

        The id in the token says which digest to compare with, and nothing more: an id that is not there costs the
        same comparison, in constant time, as a secret that is wrong, and gets the same answer.
        """
        if token is None:
            self._denied("missing")
            raise AccessDeniedError("this takes a token: send it as `Authorization: Bearer TOKEN`")
        known = self._tokens.get(token.rpartition("_")[0])
        is_right = hmac.compare_digest(digest_of(token), known.digest if known else _NOBODY)
        if known is None or not is_right:
            self._denied("unknown")
            raise AccessDeniedError("this token is not taken")
        if known.expires_at is not None and self._clock.now() >= known.expires_at:
            self._denied("expired")
            raise AccessDeniedError("this token has expired")
        return known.principal

    def refresh(self) -> None:
        """See :meth:`Access.refresh`. One line in the log for each change, and for each new trouble."""
        try:
            data = self._read()
            if data != self._data:
                self._tokens = self._by_selector(data)
                self._data = data
                _LOG.info("tokens_reloaded", tokens=len(self._tokens))
            self._trouble = None
        except TokenFileError as error:
            if self._trouble is None:
                _LOG.error("token_file_unusable", reason=str(error), tokens_in_force=len(self._tokens))
            self._trouble = "the token file cannot be used; the tokens read before stay in force"

    def trouble(self) -> str | None:
        """See :meth:`Access.trouble`."""
        return self._trouble

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                # Whoever may write it decides who gets in.
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IWOTH:
                    raise TokenFileError(f"{self._path} can be written by anybody; chmod o-w it")
                return file.read(MAX_FILE_BYTES + 1)
        except PermissionError:
            raise TokenFileError(
                f"{self._path} cannot be read by this process, user {os.geteuid()}: give the file a group of that user"
                " (chgrp, chmod 640; `kvshelf token new --group`)"
            ) from None
        except OSError as error:
            raise TokenFileError(f"{self._path} cannot be read: {error.strerror}") from None

    def _by_selector(self, data: bytes) -> Mapping[str, Token]:
        try:
            return {token.selector: token for token in read_tokens(data)}
        except TokenFileError as error:
            raise TokenFileError(f"{self._path}: {error}") from None
