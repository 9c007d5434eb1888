"""``kvshelf size``: how much SSD, DRAM, endurance and bandwidth a workload needs, and what a hit costs."""

import argparse
import json

from service.cli import console
from service.cli.errors import UsageError
from service.cli.numbers import byte_count, count, number_from, seconds
from service.cli.profile import named_profile
from service.cli.resume import abilities
from service.cli.simulate import DEFAULT_PROFILE, snapshot_policy
from service.cli.size_text import describe
from service.cli.trace_input import FORMATS_HELP, add_trace_options, read_input
from service.planner.base import Ability, Layout
from service.profiles import ProfileError
from service.simulate.options import SimulateOptions
from service.simulate.policy import NAMES
from service.sizing.load import load_of
from service.sizing.model import model_document
from service.sizing.plan import Demand, Drive, Plan
from service.sizing.prices import Prices
from service.sizing.workload import CODING_AGENT_GAPS, Gap, Workload
from service.traces.base import Trace

_DESCRIPTION = """How much SSD, DRAM, endurance and bandwidth a workload needs, and what a hit costs against a miss. The
workload is a trace, scaled to --sessions-per-day, or numbers of yours; either is simulated without budgets.
Without any of them: what the model's KV takes. docs/sizing.md says how each figure comes about.
"""
_EXAMPLES = """examples:
  kvshelf size --profile deepseek-v1-67b/bf16
  kvshelf size --sessions-per-day 100000 --turns 30 --first-tokens 15000 --turn-tokens 2500
  kvshelf size agents.jsonl.gz --sessions-per-day 100000 --retention 72h --state-ttl 5m --json
  kvshelf size --sessions-per-day 100000 --drive-bytes 7.68TB --drive-dwpd 1 \\
      --price-engine-hour 16 --prefill-tokens-per-second 30000 --price-ssd-tb-month 20 --price-dram-gb-month 2
"""
_PRICES = ("price_engine_hour", "prefill_tokens_per_second", "price_ssd_tb_month", "price_dram_gb_month")
_NUMBERS = ("turns", "first_tokens", "shared_tokens", "turn_tokens", "answer_tokens", "gaps")
_DEFAULTS = Workload(1)
_OF_THE_MODEL = ("profile", "block_tokens", "json")
"""What is not of a workload."""
_BLOCK_TOKENS = 128
"""Where neither a trace nor an option says it."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "size",
        help="say how much SSD, DRAM and endurance a workload needs",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trace", nargs="?", help=FORMATS_HELP, metavar="TRACE")
    add("--profile", default=DEFAULT_PROFILE, help=f"id, or a .toml file (default: {DEFAULT_PROFILE})")
    add_trace_options(parser)
    _add_workload(parser)
    _add_shelves(parser)
    _add_prices(parser)
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)
    parser.set_defaults(unasked=parser.parse_args([]))


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the workload, in numbers (with a trace only the first)")
    add = group.add_argument
    positive = number_from(1e-6, 1e12)
    add("--sessions-per-day", type=positive, metavar="N", help="sessions that start a day (default: the trace's rate)")
    add("--turns", type=count, metavar="N", help=f"requests of a session (default: {_DEFAULTS.turns})")
    text = f"tokens of its first prompt (default: {_DEFAULTS.first_tokens})"
    add("--first-tokens", type=count, metavar="N", help=text)
    add("--shared-tokens", type=count, metavar="N", help="of these, what all sessions share (default: 0)")
    text = f"what each further prompt has more (default: {_DEFAULTS.turn_tokens})"
    add("--turn-tokens", type=count, metavar="N", help=text)
    text = f"of these, the answer (default: {_DEFAULTS.answer_tokens})"
    add("--answer-tokens", type=count, metavar="N", help=text)
    shown = ",".join(f"{gap.seconds:g}s:{gap.share:g}" for gap in CODING_AGENT_GAPS)
    text = f"waits between requests and their shares (default: {shown}, about what coding agents do)"
    add("--gaps", type=_gaps, metavar="T:SHARE,..", help=text)
    add("--peak-factor", type=number_from(1, 1000), default=3.0, metavar="X", help="busiest hour by mean (default: 3)")


def _add_shelves(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the shelves")
    add = group.add_argument
    add("--retention", type=seconds, default="72h", metavar="T", help="life of global KV after its last use (72h)")
    add("--state-ttl", type=seconds, default="5m", metavar="T", help="life of a snapshot after its last use (5m)")
    text = f"which snapshots are stored: {NAMES} (default: last-block)"
    add("--snapshots", type=snapshot_policy, default="last-block", metavar="POLICY", help=text)
    add("--exact-only", action="store_true", help="allow nothing that is not bit-identical to a full prefill")
    text = f"what the engines can do, as a list of {', '.join(Ability)} (default: the profile's)"
    add("--supports", type=abilities, metavar="A,..", help=text)
    text = "SSD budget by what lives on it (default: 1.2)"
    add("--headroom", type=number_from(1, 100), default=1.2, metavar="X", help=text)
    text = "bytes written to the disk by bytes stored: carrying forward, index (default: 1.2)"
    add("--write-factor", type=number_from(1, 100), default=1.2, metavar="X", help=text)
    add("--drive-bytes", type=byte_count, metavar="B", help="capacity of one drive, such as 7.68TB")
    rating = group.add_mutually_exclusive_group()
    text = "its endurance, as what may be written, such as 14000TB"
    rating.add_argument("--drive-tbw", type=byte_count, metavar="B", help=text)
    text = "its endurance, as full writes a day over --drive-years"
    rating.add_argument("--drive-dwpd", type=number_from(0.001, 1000), metavar="X", help=text)
    add("--drive-years", type=number_from(0.1, 100), default=5.0, metavar="Y", help="its warranty (default: 5)")


def _add_prices(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prices, in any one currency; all four or none")
    price = number_from(0, 1e9)
    group.add_argument("--price-engine-hour", type=price, metavar="P", help="an hour of one engine, all its GPUs")
    text = "what that engine prefills"
    group.add_argument("--prefill-tokens-per-second", type=number_from(1e-3, 1e12), metavar="N", help=text)
    group.add_argument("--price-ssd-tb-month", type=price, metavar="P", help="a terabyte of SSD for a month")
    group.add_argument("--price-dram-gb-month", type=price, metavar="P", help="a gigabyte of DRAM for a month")


def run(arguments: argparse.Namespace) -> int:
    """Work it out and print it; see the command's help."""
    try:
        document = _document(arguments)
    except (ValueError, ProfileError) as error:
        raise UsageError(str(error)) from None
    console.say(json.dumps(document, indent=2) if arguments.json else describe(document))
    return 0


def _document(arguments: argparse.Namespace) -> dict[str, object]:
    trace = _trace(arguments)
    profile = named_profile(arguments.profile)
    layout = profile.layout(trace.block_tokens if trace is not None else arguments.block_tokens or _BLOCK_TOKENS)
    document: dict[str, object] = {"profile": profile.id, "model": model_document(layout)}
    prices = _prices(arguments)
    if trace is None:
        _check_nothing_is_ignored(arguments)
        return document
    plan = _plan(arguments, trace, layout)
    document["workload"] = {"trace": trace.name, "format": trace.format, "generated": trace.generated is not None}
    document["plan"] = plan.document()
    if prices is not None:
        document["prices"] = prices.document(plan)
    return document


def _check_nothing_is_ignored(arguments: argparse.Namespace) -> None:
    """Without a workload only what concerns the model may be asked for."""
    for name, unasked in vars(arguments.unasked).items():
        if name not in _OF_THE_MODEL and getattr(arguments, name) != unasked:
            raise UsageError(f"--{name.replace('_', '-')} needs a workload: a trace, or --sessions-per-day")


def _trace(arguments: argparse.Namespace) -> Trace | None:
    """The trace that is named, or one made of the numbers; None where there is neither."""
    numbers = {name: getattr(arguments, name) for name in _NUMBERS if getattr(arguments, name) is not None}
    if arguments.trace is not None:
        if numbers:
            raise UsageError(f"a trace says this itself: --{next(iter(numbers)).replace('_', '-')}")
        return read_input(arguments)
    if arguments.sessions_per_day is None:
        if numbers:
            raise UsageError("a workload in numbers needs --sessions-per-day")
        return None
    return Workload(arguments.sessions_per_day, **numbers).trace(arguments.block_tokens or _BLOCK_TOKENS)


def _plan(arguments: argparse.Namespace, trace: Trace, layout: Layout) -> Plan:
    options = SimulateOptions(
        global_ttl_seconds=arguments.retention,
        state_ttl_seconds=arguments.state_ttl,
        snapshots=arguments.snapshots,
        exact_only=arguments.exact_only,
        supports=arguments.supports,
    )
    load = load_of(trace, layout, options)
    demand = Demand(
        units_per_day=arguments.sessions_per_day or load.units_per_day,
        peak_factor=arguments.peak_factor,
        headroom=arguments.headroom,
        write_factor=arguments.write_factor,
        drive=_drive(arguments),
    )
    return Plan.of(load, demand)


def _drive(arguments: argparse.Namespace) -> Drive | None:
    rated = arguments.drive_tbw or arguments.drive_dwpd
    if not arguments.drive_bytes or not rated:
        if arguments.drive_bytes is not None or rated:
            raise UsageError("a drive is --drive-bytes with --drive-tbw or --drive-dwpd, all above 0")
        return None
    if arguments.drive_tbw:
        return Drive(arguments.drive_bytes, arguments.drive_tbw)
    return Drive.rated(arguments.drive_bytes, arguments.drive_dwpd, arguments.drive_years)


def _prices(arguments: argparse.Namespace) -> Prices | None:
    given = [getattr(arguments, name) for name in _PRICES]
    if all(price is None for price in given):
        return None
    if any(price is None for price in given):
        missing = [name for name, price in zip(_PRICES, given, strict=True) if price is None]
        raise UsageError(f"prices come together; missing: --{', --'.join(missing).replace('_', '-')}")
    return Prices(*given)


def _gaps(text: str) -> list[Gap]:
    gaps: list[Gap] = []
    for part in text.split(","):
        wait, _, share = part.partition(":")
        gaps.append(Gap(seconds(wait), number_from(0, 1e9)(share)))
    return gaps
