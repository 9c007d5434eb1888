"""The trace reader: both formats, plain and compressed, order, limits, and what it does with bad lines."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.cli.main import main
from service.traces import reader
from service.traces.base import BadLine, Run, Trace, TraceError
from service.traces.generate import sample_path
from service.traces.reader import read_trace


def _request(t: float, tokens: int, *runs: list[int], **more: Any) -> dict[str, Any]:
    return {"t": t, "in": tokens, "out": 7, "runs": list(runs), **more}


def _session(name: str, *requests: dict[str, Any], block_size: int = 10) -> dict[str, Any]:
    return {"id": name, "block_size": block_size, "requests": list(requests), "models": ["any"]}


def _mooncake(milliseconds: int, tokens: int, ids: list[int]) -> dict[str, Any]:
    return {"timestamp": milliseconds, "input_length": tokens, "output_length": 3, "hash_ids": ids}


def _write(folder: Path, lines: Sequence[object], name: str = "trace.jsonl") -> Path:
    """Strings are written as they are, everything else as JSON."""
    path = folder / name
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def _times(trace: Trace) -> list[tuple[str | None, float]]:
    return [(request.session, request.time_seconds) for request in trace.requests]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz", "gz_inside_although_not_so_named"])
def test_sessions_plain_and_compressed(tmp_path: Path, name: str) -> None:
    lines = [_session("a", _request(0, 45, [1, 3], [9, 2]), _request(2.5, 30, [1, 3], agent="sub"))]
    path = _write(tmp_path, lines, name)
    if "inside" in name:
        path.write_bytes(gzip.compress(path.read_bytes()))
    trace = read_trace(path)
    assert (trace.format, trace.block_tokens, trace.sessions, trace.bad_lines) == ("sessions", 10, 1, 0)
    assert (trace.input_tokens, trace.duration_seconds) == (75, 2.5)
    assert trace.name == name.split(".", 1)[0]
    first, second = trace.requests
    assert (first.session, first.agent, first.input_tokens, first.output_tokens) == ("a", None, 45, 7)
    assert first.runs == (Run(1, 3), Run(9, 1))
    assert list(first.block_ids()) == [1, 2, 3, 9]
    assert first.full_blocks == 4
    assert (second.agent, second.scope) == ("sub", "a")


def test_mooncake(tmp_path: Path) -> None:
    path = _write(tmp_path, [_mooncake(1500, 4 * 512 + 1, [7, 8, 9, 4, 5]), _mooncake(2000, 511, [])])
    trace = read_trace(path)
    assert (trace.format, trace.block_tokens, trace.sessions) == ("mooncake", 512, 0)
    first, second = trace.requests
    assert (first.time_seconds, first.session, first.output_tokens) == (1.5, None, 3)
    assert first.runs == (Run(7, 3), Run(4, 1))
    assert (second.runs, second.full_blocks) == ((), 0)


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 0), (9, 0), (10, 1), (11, 1), (19, 1), (20, 2)])
def test_only_full_blocks_count(tmp_path: Path, tokens: int, blocks: int) -> None:
    trace = read_trace(_write(tmp_path, [_session("a", _request(0, tokens, [5, 2], [1, 1]))]))
    assert list(trace.requests[0].block_ids()) == [5, 6][:blocks]


def test_sessions_are_merged_by_time_then_session_then_request(tmp_path: Path) -> None:
    lines = [
        _session("late", _request(5, 1), _request(3, 2), _request(5, 3)),
        _session("early", _request(1, 4), _request(5, 5), _request(3, 6)),
    ]
    trace = read_trace(_write(tmp_path, lines))
    assert [request.input_tokens for request in trace.requests] == [4, 2, 6, 1, 3, 5]


def test_requests_limit_counts_after_merging_and_sessions_limit_before(tmp_path: Path) -> None:
    lines = [
        _session("a", _request(0, 9), _request(4, 9)),
        _session("b", _request(1, 9)),
        _session("c", _request(2, 9)),
    ]
    path = _write(tmp_path, lines)
    assert _times(read_trace(path, requests_limit=3)) == [("a", 0), ("b", 1), ("c", 2)]
    assert _times(read_trace(path, sessions_limit=2)) == [("a", 0), ("b", 1), ("a", 4)]
    assert _times(read_trace(path, sessions_limit=2, requests_limit=1)) == [("a", 0)]
    assert _times(read_trace(path, sessions_limit=9, requests_limit=99)) == _times(read_trace(path))
    assert read_trace(path, sessions_limit=2).sessions == 2


@pytest.mark.parametrize("limits", [{"sessions_limit": 0}, {"requests_limit": 0}, {"requests_limit": -1}])
def test_a_limit_below_one(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        read_trace(tmp_path, **limits)  # type: ignore[arg-type]


def test_sessions_limit_of_a_trace_without_sessions(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="knows no sessions"):
        read_trace(_write(tmp_path, [_mooncake(0, 1, [])]), sessions_limit=1)


def _chat(chat: int, parent: int, seconds: float, tokens: int, ids: list[int]) -> dict[str, Any]:
    return {
        "chat_id": chat, "parent_chat_id": parent, "timestamp": seconds, "input_length": tokens, "output_length": 5,
        "type": "text", "turn": 1, "hash_ids": ids,
    }  # fmt: skip


def test_bailian(tmp_path: Path) -> None:
    """A chat belongs to the session of the chat it goes back to, also where that one was before the trace."""
    lines = [
        _chat(7, -1, 0.5, 33, [5, 6, 9]),
        _chat(8, 7, 1.0, 48, [5, 6, 10]),
        _chat(9, 8, 2.0, 16, [5]),
        _chat(20, 3, 3.0, 15, [1]),
        _chat(21, 3, 4.0, 16, [1]),
        _chat(30, -1, 5.0, 16, [5]),
    ]
    trace = read_trace(_write(tmp_path, lines))
    assert (trace.format, trace.block_tokens, trace.sessions) == ("bailian", 16, 3)
    assert [request.session for request in trace.requests] == ["7", "7", "7", "3", "3", "30"]
    first, second, *_ = trace.requests
    assert (first.time_seconds, first.output_tokens, first.scope, first.runs) == (0.5, 5, None, (Run(5, 2),))
    assert list(second.block_ids()) == [5, 6, 10]
    assert [request.full_blocks for request in trace.requests] == [2, 3, 1, 0, 1, 1]
    assert [one.session for one in read_trace(tmp_path / "trace.jsonl", sessions_limit=2).requests].count("30") == 0


def _plain(folder: Path, *lines: object, **header: Any) -> Path:
    return _write(folder, [{"kvshelf_trace": 1, "block_tokens": 10, **header}, *lines])


def test_our_own_format(tmp_path: Path) -> None:
    path = _plain(
        tmp_path,
        {"t": 2, "in": 25, "runs": [[4, 2]]},
        {"t": 1, "in": 31, "runs": [[4, 2], [9, 9]], "session": "s", "agent": "a", "out": 3, "compacted": True},
        generated={"seed": 5},
    )
    trace = read_trace(path)
    assert (trace.format, trace.block_tokens, trace.sessions, trace.bad_lines) == ("kvshelf", 10, 1, 0)
    assert trace.generated == {"seed": 5}
    first, second = trace.requests
    assert (first.session, first.agent, first.scope, first.output_tokens) == ("s", "a", None, 3)
    assert (first.is_compaction, second.is_compaction) == (True, False)
    assert first.runs == (Run(4, 2), Run(9, 1))
    assert (second.line, second.scope, second.runs) == ((None, None), None, (Run(4, 2),))


def test_own_ids_of_sessions(tmp_path: Path) -> None:
    told: list[BadLine] = []
    lines = [{"t": 0, "in": 10, "runs": [[1, 1]], "session": "s"}, {"t": 0, "in": 10, "runs": [[1, 1]]}]
    trace = read_trace(_plain(tmp_path, *lines, ids="session"), on_bad_line=told.append)
    assert [request.scope for request in trace.requests] == ["s"]
    assert told == [BadLine(3, "no session, but the ids are each session's own")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"in": 10, "runs": [[1, 1]]}, "`t`"),
        ({"t": 0, "in": 10, "runs": []}, "1 full blocks but only 0"),
        ({"t": 0, "in": 0, "runs": []}, r"\$.in"),
        ({"t": 0, "in": 5, "runs": [], "agent": "a"}, "an agent of no session"),
        ({"t": 0, "in": 5, "runs": [], "session": ""}, r"\$.session"),
        ({"t": 0, "in": 5, "runs": [[1, 0]]}, r"\$.runs"),
        ({"t": 0, "in": 5, "runs": [], "compacted": 1}, r"\$.compacted"),
        ("[]", "array"),
    ],
)
def test_bad_lines_of_our_own_format(tmp_path: Path, line: object, reason: str) -> None:
    path = _plain(tmp_path, {"t": 0, "in": 5, "runs": []}, line)
    told: list[BadLine] = []
    assert read_trace(path, on_bad_line=told.append).bad_lines == 1
    assert told[0].number == 3
    assert re.search(reason, told[0].reason)
    with pytest.raises(TraceError, match=f"line 3: .*{reason}"):
        read_trace(path, strict=True)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"kvshelf_trace": 2}, "version 2 of the format; this kvshelf reads version 1"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"ids": "mine"}, "ids"),
    ],
)
def test_headers_that_cannot_be_used(tmp_path: Path, header: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(_plain(tmp_path, {"t": 0, "in": 5, "runs": []}, **header))


def test_a_header_without_requests(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no request"):
        read_trace(_plain(tmp_path))


def test_strict_takes_what_has_no_bad_line(tmp_path: Path) -> None:
    assert read_trace(sample_path(), strict=True).bad_lines == 0


def test_sessions_limit_where_lines_are_requests(tmp_path: Path) -> None:
    """The sessions that come first in the file, whole, wherever their requests are."""
    lines = [{"t": t, "in": 5, "runs": [], "session": name} for t, name in ((5, "b"), (1, "a"), (0, "c"), (9, "b"))]
    trace = read_trace(_plain(tmp_path, *lines), sessions_limit=2)
    assert _times(trace) == [("a", 1), ("b", 5), ("b", 9)]
    assert trace.sessions == 2


@pytest.mark.parametrize(
    "lines",
    [
        [
            _session("a", _request(0, 45, [1, 3], [9, 2]), _request(2.5, 30, [1, 3], agent="sub")),
            _session("b", _request(1, 5)),
        ],
        [_mooncake(1500, 4 * 512 + 1, [7, 8, 9, 4, 5]), _mooncake(2000, 511, [])],
        [_chat(7, -1, 0.5, 33, [5, 6, 9]), _chat(8, 7, 1.25, 48, [5, 6, 10])],
        [
            {"kvshelf_trace": 1, "block_tokens": 10, "generated": "yes"},
            {"t": 0.1, "in": 5, "runs": [], "session": "ä", "compacted": True},
        ],
    ],
)
def test_converting_keeps_everything(tmp_path: Path, lines: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    path, out = _write(tmp_path, lines), tmp_path / "out.jsonl.gz"
    assert main(["trace", "convert", str(path), "--out", str(out)]) == 0
    before, after = read_trace(path), read_trace(out)
    assert after.format == "kvshelf"
    assert after.requests == before.requests
    assert (after.sessions, after.block_tokens, after.generated) == (
        before.sessions, before.block_tokens, before.generated
    )  # fmt: skip
    assert f"{len(before.requests)} requests" in capsys.readouterr().out


def test_converting_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = _plain(tmp_path, {"t": 0, "in": 5, "runs": []}, "{"), tmp_path / "out.jsonl"
    assert main(["trace", "convert", str(path), "--strict", "--out", str(out)]) == 2
    assert "line 3: " in capsys.readouterr().err
    assert not out.exists()
    assert main(["trace", "convert", str(path), "--out", str(out)]) == 0
    output = capsys.readouterr()
    assert "1 bad lines" in output.out
    assert output.err.startswith("line 3 left out: ")


def test_bad_lines_are_told_with_their_number_and_left_out(tmp_path: Path) -> None:
    good = _session("a", _request(0, 20, [1, 2]))
    bad = {
        "not json": "{",
        "null": "null",
        "no requests": _session("b"),
        "same session again": good,
        "another block size": _session("c", _request(0, 20, [1, 2]), block_size=20),
        "too few ids": _session("d", _request(0, 10, [1, 1]), _request(0, 30, [1, 2])),
        "no tokens": _session("e", _request(0, 0)),
        "before the start": _session("f", _request(-1, 9)),
        "an empty run": _session("g", _request(0, 9, [1, 0])),
        "a negative id": _session("h", _request(0, 9, [-1, 1])),
        "no id": {**good, "id": ""},
        "no utf-8": '{"id": "\udc80"}',
    }
    path = tmp_path / "trace.jsonl"
    lines = [json.dumps(good), "", *(line if isinstance(line, str) else json.dumps(line) for line in bad.values())]
    lines.append(json.dumps(_session("z", _request(1, 9))))
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    told: list[BadLine] = []
    trace = read_trace(path, on_bad_line=told.append)
    assert _times(trace) == [("a", 0), ("z", 1)]
    assert trace.bad_lines == len(bad)
    assert [line.number for line in told] == list(range(3, 3 + len(bad)))
    reasons = dict(zip(bad, (line.reason for line in told), strict=True))
    assert reasons["too few ids"] == "session 'd', request 2: 3 full blocks but only 2 block ids"
    assert reasons["another block size"] == "block size 20, but 10 in the lines before it"
    assert reasons["same session again"] == "session 'a' was there before"
    assert "$.requests[0].in" in reasons["no tokens"]


def test_a_bad_mooncake_line(tmp_path: Path) -> None:
    told: list[BadLine] = []
    path = _write(tmp_path, [_mooncake(0, 512, [1]), _mooncake(0, 1024, [1]), _mooncake(-1, 9, [])])
    trace = read_trace(path, on_bad_line=told.append)
    assert (len(trace.requests), trace.bad_lines) == (1, 2)
    assert told[0] == BadLine(2, "2 full blocks but only 1 block ids")


def test_a_line_over_the_bound_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = json.dumps(_session("a", _request(0, 9)))
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", len(short) + 1)
    told: list[BadLine] = []
    long = json.dumps(_session("b", *[_request(0, 9)] * 20))
    last = json.dumps(_session("c", _request(0, 9)))
    trace = read_trace(_write(tmp_path, [short, long, last]), on_bad_line=told.append)
    assert [request.session for request in trace.requests] == ["a", "c"]
    assert told == [BadLine(2, f"longer than {len(short) + 1} bytes")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        (["", "  "], "is empty"),
        (["nonsense"], "first line is no JSON"),
        (["[1]"], "no trace of a known format"),
        ([{"id": "a"}], "no trace of a known format.*sessions: block_size, requests.*mooncake:"),
        ([_session("a"), "x"], "holds no request; all of its 2 lines are bad"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(_write(tmp_path, lines))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read"):
        read_trace(tmp_path / "absent.jsonl")
    with pytest.raises(TraceError, match="cannot read"):
        read_trace(tmp_path)
    whole = gzip.compress(json.dumps(_session("a", _request(0, 9))).encode())
    for name, damaged in (("cut", whole[:-9]), ("flipped", whole[:20] + bytes([whole[20] ^ 255]) + whole[21:])):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(TraceError, match="cannot read"):
            read_trace(tmp_path / name)
