"""Tell the service manager where the service stands: systemd's ``Type=notify``, without its library.

Source of the protocol: sd_notify(3). Without ``NOTIFY_SOCKET`` in the environment nobody wants to know.
"""

import os
import socket
from collections.abc import Mapping

import structlog

READY = "READY=1"
STOPPING = "STOPPING=1"
_LOG = structlog.get_logger("kvshelf.server")


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send one state; returns whether somebody was told. A manager that cannot be reached is logged, never an error."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # An address that starts with @ is in the abstract namespace, whose names start with a zero byte.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), name)
    except OSError as error:
        _LOG.warning("service_manager_not_told", state=state, error=str(error))
        return False
    return True
