"""Calls of an operator's commands to a running service, JSON in and out."""

import argparse
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from kvshelf_client.http.tls import context_of
from service.cli.errors import CommandError, UsageError
from service.cli.options import client_options, with_token_hint

_TIMEOUT_SECONDS = 30.0
_ASKED_WRONGLY = (401, 403, 404, 409, 413, 422)


class RefusedError(UsageError):
    """The service says that it was asked wrongly: ``status`` is an HTTP status. The text says how to ask."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class Service:
    """A running service, as a command asks it. No proxy is between them, whatever the environment says.

    Args:
        url: its address.
        token: what it asks for, if it does.
        context: whom to trust, where the address is encrypted.
        timeout_seconds: longest silence of it.

    Raises:
        UsageError: no HTTP address.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        context: ssl.SSLContext | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url} is no address of a service, such as http://127.0.0.1:8710")
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_seconds = timeout_seconds
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call.

        Raises:
            RefusedError: the service says that it was asked wrongly.
            CommandError: it does not answer, or cannot do it.
        """
        request = urllib.request.Request(self.url + path, method=method, headers=self._headers)  # noqa: S310 - checked above
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            detail = _detail_of(error)
            if error.code in _ASKED_WRONGLY:
                raise RefusedError(error.code, with_token_hint(error.code, detail)) from None
            raise CommandError(detail) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(f"no answer from {self.url}: {reason}; is the service running there?") from None


def service_of(
    arguments: argparse.Namespace, timeout_seconds: float = _TIMEOUT_SECONDS, token: str | None = None
) -> Service:
    """The service that a command's options name, asked with their token or another; raises UsageError."""
    options = client_options(arguments, timeout_seconds)
    try:
        context = context_of(options["tls"]) if arguments.url.startswith("https://") else None
    except OSError as error:
        raise UsageError(f"cannot use the files named for TLS: {error}") from None
    return Service(arguments.url, token=token or options["token"], context=context, timeout_seconds=timeout_seconds)


def _detail_of(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered with status {error.code}"
