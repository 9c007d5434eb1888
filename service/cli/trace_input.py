"""The trace that a command is given: its arguments, and what a person is told of bad lines."""

import argparse
from pathlib import Path

from service.cli import console
from service.cli.errors import UsageError
from service.cli.numbers import count
from service.traces.base import BadLine, Trace, TraceError
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from service.traces.regroup import regroup

FORMATS_HELP = "kvshelf, session, Mooncake or Bailian JSONL, plain or .gz; or `sample`"
_BAD_LINES_SHOWN = 10


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """Add which part of the trace to take, in which blocks, and what to do about bad lines."""
    parser.add_argument("--sessions", type=count, metavar="N", help="only the first N sessions of the file")
    parser.add_argument("--requests", type=count, metavar="N", help="only the first N requests, after merging")
    text = "put the trace's blocks together to blocks of so many tokens (default: the trace's own)"
    parser.add_argument("--block-tokens", type=count, metavar="N", help=text)
    parser.add_argument("--strict", action="store_true", help="stop at the first bad line instead of leaving it out")


def read_input(arguments: argparse.Namespace) -> Trace:
    """Read ``arguments.trace``, and tell of the first bad lines; raises UsageError."""
    shown = 0

    def on_bad_line(bad: BadLine) -> None:
        nonlocal shown
        shown += 1
        if shown <= _BAD_LINES_SHOWN:
            console.warn(f"line {bad.number} left out: {bad.reason}")

    path = sample_path() if arguments.trace == "sample" else Path(arguments.trace)
    try:
        trace = read_trace(
            path,
            sessions_limit=arguments.sessions,
            requests_limit=arguments.requests,
            strict=arguments.strict,
            on_bad_line=on_bad_line,
        )
        if arguments.block_tokens is not None:
            trace = regroup(trace, arguments.block_tokens)
    except TraceError as error:
        raise UsageError(str(error)) from None
    if trace.bad_lines > _BAD_LINES_SHOWN:
        console.warn(f"{trace.bad_lines} lines left out in all")
    return trace
