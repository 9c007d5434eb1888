"""``kvshelf resume``: what a request would load and run, worked out without a server."""

import argparse
import json

from kvshelf_client.words import Provenance
from service.cli import console
from service.cli.errors import UsageError
from service.cli.profile import named_profile
from service.cli.resume_text import resume_text
from service.planner import InvalidRequestError, fallback_plan, plan_document, request_for, resume_plan
from service.planner.base import Ability, Cached, Layout, Request, Snapshot
from service.profiles import ProfileError

_FLAGS = {"snapshots": "--snapshot"}
"""The flags that are not called as the planner's field."""
_HELD_EXACT = "all, but none where the profile's replay is bounded"
_EPILOG = """\
examples:
  the global KV of 896 tokens is there and the window's state is gone: replay one window
    kvshelf resume --profile deepseek-v4.1-flash/fp4 --prompt-tokens 1000 --global-tokens 896
  the same, with an exact snapshot at 768
    kvshelf resume --profile deepseek-v4.1-flash/fp4 --prompt-tokens 1000 --global-tokens 896 --snapshot 768
  an engine that still holds 992 tokens
    kvshelf resume --profile llama-3-8b/bf16 --prompt-tokens 1000 --global-tokens 896 --hbm-tokens 992
  a profile of your own, for a program to read
    kvshelf resume --profile mine.toml --prompt-tokens 1000 --global-tokens 896 --exact-only --json
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register ``resume``."""
    parser = commands.add_parser(
        "resume",
        help="work out what a request would load and run",
        description="The resume plan of a request: what it loads, where it runs, and what it saves. Asks no server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--profile", required=True, metavar="ID|FILE.toml", help="KV layout of the model")
    add("--block-tokens", type=int, default=128, metavar="N", help="tokens a block (default: 128)")
    add("--prompt-tokens", type=int, required=True, metavar="L", help="length of the prompt")
    add("--global-tokens", type=int, required=True, metavar="G", help="tokens from its start with cached global KV")
    add("--exact-global-tokens", type=int, metavar="GE", help="of these, the exact ones (default: all)")
    add("--hbm-tokens", type=int, default=0, metavar="H", help="tokens from its start that the engine holds")
    add("--hbm-exact-tokens", type=int, metavar="HX", help=f"of these, the exact ones (default: {_HELD_EXACT})")
    add("--hbm-state", action="store_true", help="the engine holds the state at --hbm-tokens, too")
    for flag, kind in (("--snapshot", "an exact"), ("--replayed-snapshot", "a replayed")):
        text = f"boundary of {kind} snapshot that is there; may be repeated"
        add(flag, type=int, action="append", default=[], metavar="B", help=text)
    text = f"what the engine can do, as a list (default: {','.join(Ability)})"
    add("--supports", type=abilities, default=frozenset(Ability), metavar="A,..", help=text)
    add("--exact-only", action="store_true", help="allow nothing that is not bit-identical to a full prefill")
    text = "load nothing that costs more bytes for each token it saves"
    add("--max-load-bytes-per-saved-token", type=float, metavar="X", help=text)
    add("--json", action="store_true", help="print the plan as a JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan and print."""
    profile = named_profile(arguments.profile)
    try:
        layout = profile.layout(arguments.block_tokens)
        request, cached = _request(layout, arguments), _cached(arguments)
        plan = resume_plan(layout, request, cached)
    except ProfileError as error:
        raise UsageError(str(error)) from None
    except InvalidRequestError as error:
        flag = _FLAGS.get(error.field, f"--{error.field.replace('_', '-')}")
        raise UsageError(f"{flag} {error.problem}") from None
    if arguments.json:
        console.say(json.dumps(plan_document(plan)))
    else:
        console.say(f"{profile.id}, blocks of {layout.block_tokens:,} tokens\n")
        console.say(resume_text(plan, fallback_plan(layout, request, cached), layout))
    return 0


def _request(layout: Layout, arguments: argparse.Namespace) -> Request:
    return request_for(
        layout,
        arguments.prompt_tokens,
        allow_approximate=not arguments.exact_only,
        supports=arguments.supports,
        hbm_tokens=arguments.hbm_tokens,
        hbm_exact_tokens=arguments.hbm_exact_tokens,
        hbm_state=arguments.hbm_state,
        max_load_bytes_per_saved_token=arguments.max_load_bytes_per_saved_token,
    )


def _cached(arguments: argparse.Namespace) -> Cached:
    there, exact = arguments.global_tokens, arguments.exact_global_tokens
    snapshots = [Snapshot(boundary, Provenance.EXACT) for boundary in arguments.snapshot]
    snapshots += [Snapshot(boundary, Provenance.REPLAYED) for boundary in arguments.replayed_snapshot]
    return Cached(there, there if exact is None else exact, tuple(snapshots))


def abilities(text: str) -> frozenset[Ability]:
    """The abilities of a comma-separated list, which may be empty."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in list(Ability)]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: unknown; an engine supports {', '.join(Ability)}")
    return frozenset(map(Ability, words))
