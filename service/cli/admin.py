"""Calls of an operator's commands to a running service, JSON in and out."""

import json
import os
import urllib.error
import urllib.request
from typing import Any

from service.cli.errors import CommandError, UsageError
from service.settings.load import TOKEN_VARIABLE

_TIMEOUT_SECONDS = 30.0


def call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One call; the token is that of the environment, if there is one.

    Raises:
        UsageError: no HTTP address, or the service says that it was asked wrongly.
        CommandError: it does not answer, or cannot do it.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url} is no address of a service, such as http://127.0.0.1:8710")
    request = urllib.request.Request(url.rstrip("/") + path, method=method)  # noqa: S310 - checked above
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    token = os.environ.get(TOKEN_VARIABLE)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked above
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        detail = _detail_of(error)
        raise (UsageError if error.code in (404, 409, 413, 422) else CommandError)(detail) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(f"no answer from {url}: {reason}; is the service running there?") from None


def _detail_of(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered with status {error.code}"
