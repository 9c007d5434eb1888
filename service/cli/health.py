"""``kvshelf health``: ask a service how it is, for health checks of containers and for scripts."""

import argparse
import json
import ssl
from pathlib import Path

from service.cli import console
from service.cli.admin import Service, service_of
from service.cli.errors import UsageError
from service.cli.options import add_client_options, settings_from
from service.settings import Settings, TlsSettings

_TIMEOUT_SECONDS = 2.0
_EXAMPLES = """examples:
  kvshelf health                                 the service of these settings: KVSHELF_CONFIG and the environment
  kvshelf health --config /etc/kvshelf/kvshelf.toml
  kvshelf health http://kvshelf-0.kvshelf:8710   another one
  kvshelf health --strict                        fail when it is degraded, too

exit status: 0 it serves (degraded too, unless --strict), 1 it does not answer or is not healthy enough, 2 asked wrongly
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "health",
        help="ask a service how it is",
        description="Ask a service for its health. It needs no token.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "the service (default: the one on this machine that the settings describe)"
    parser.add_argument("url", nargs="?", help=text)
    parser.add_argument("--config", type=Path, metavar="FILE", help="that service's settings (or KVSHELF_CONFIG)")
    add_client_options(parser)
    parser.add_argument("--strict", action="store_true", help="a degraded service is a failure")
    parser.add_argument("--json", action="store_true", help="print status and causes as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    service = service_of(arguments, _TIMEOUT_SECONDS) if arguments.url else _own(settings_from(arguments), arguments)
    health = service.call("GET", "/healthz")
    if arguments.json:
        console.say(json.dumps(health))
    else:
        console.say("; ".join([health["status"], *health["causes"]]))
    return int(health["status"] != "ok" if arguments.strict else health["status"] not in ("ok", "degraded"))


def _own(settings: Settings, arguments: argparse.Namespace) -> Service:
    """The service of these settings, on this machine."""
    host, port = settings.server.host, settings.server.port
    if port == 0:
        raise UsageError("server.port = 0 takes a free port: name the address that the service said at its start")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = _trusting(settings.tls, arguments) if settings.tls.is_on else None
    scheme = "http" if context is None else "https"
    return Service(f"{scheme}://{authority}", context=context, timeout_seconds=_TIMEOUT_SECONDS)


def _trusting(tls: TlsSettings, arguments: argparse.Namespace) -> ssl.SSLContext:
    """Takes the service's own certificate, and no other, for whatever address: its names need not be of this machine.

    A service that asks for certificates is shown that same one, unless another is named.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=_first_certificate(tls.cert_file))
        if tls.client_ca_file is not None:
            shown = (arguments.cert_file, arguments.key_file) if arguments.cert_file else (tls.cert_file, tls.key_file)
            context.load_cert_chain(*shown)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use the certificate {tls.cert_file}: {error}") from None
    return context


def _first_certificate(path: Path | None) -> str:
    """The service's own of a file that has its chain, too; raises OSError and ValueError."""
    text, end = path.read_text("ascii") if path else "", "-----END CERTIFICATE-----"
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
