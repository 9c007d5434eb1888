"""``kvshelf replay`` as a user runs it, against a real service."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvshelf_client.requests import StoreRecord
from kvshelf_client.words import Provenance, RecordClass
from service.access import ANYBODY
from service.cli.main import main
from service.replay.target import Target
from service.traces.chain import ChainHasher
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from tests.support.client import registered
from tests.support.service import V41
from tests.support.stage import Stage
from tests.support.traces import hit_tokens_of

_PROMISED = ["requests", "prompt_tokens", "hit_tokens", "matched_tokens", "tokens_by_source", "resumes"]
_PROMISED += ["replayed_tokens"]


def test_json(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "sample", "--url", stage.url, "--sessions", "2", "--json", "--salt", "s"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    trace = read_trace(sample_path(), sessions_limit=2)
    assert document.keys() >= set(_PROMISED)
    assert document["requests"] == len(trace.requests)
    assert document["prompt_tokens"] == trace.input_tokens
    assert document["hit_tokens"] == hit_tokens_of(trace)
    assert sum(document["tokens_by_source"].values()) == trace.input_tokens
    assert sum(document["resumes"].values()) == len(trace.requests)
    assert (document["complete"], document["salt"], document["bad_lines"]) == (True, "s", 0)
    assert all(document["latency_seconds"][verb]["p50"] > 0 for verb in ("plan", "fetch", "store", "release"))
    assert output.err == ""


def test_tables_and_limits(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--requests", "3", "--bytes-per-token", "2", "--relaxed", "--namespace", "mine", "--shards", "1"]
    assert main(["replay", "sample", "--url", stage.url, *arguments]) == 0
    text = capsys.readouterr().out
    assert "3 of 3 requests of sample (kvshelf, generated, blocks of 64 tokens)" in text
    assert "namespace mine" in text
    for heading in ("tokens by source", "resumes by mode", "records", "latency in ms"):
        assert heading in text
    assert stage.parts.namespaces.get(ANYBODY, "mine").shard_block_bytes == 2 * 64


def test_a_chosen_namespace_is_found_again(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        main(["replay", "sample", "--url", stage.url, "--requests", "5", "--namespace", "mine", "--json"])
    first, second = (json.loads(text + "}") for text in capsys.readouterr().out.split("\n}\n")[:2])
    assert first["resumes"]["cold"] > 0
    assert second["resumes"]["cold"] == 0
    assert main(["replay", "sample", "--url", stage.url, "--namespace", "mine", "--salt", "other"]) == 2
    assert "salt" in capsys.readouterr().err


def test_a_mooncake_trace(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 10, "input_length": 1600, "output_length": 5, "hash_ids": [0, 1, 3, 4]},
        {"timestamp": 5, "input_length": 100, "output_length": 5, "hash_ids": [9]},
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert main(["replay", str(path), "--url", stage.url, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["requests"], document["prompt_tokens"], document["hit_tokens"]) == (3, 3200, 1024)


def test_a_wrong_byte_is_a_failure(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody else has stored other bytes under the key of the trace's first block."""
    trace = read_trace(sample_path(), requests_limit=1)
    namespace = registered(stage.client, "mine", Target(V41, 1, "").spec_for(trace))
    keys = ChainHasher(namespace.fingerprint).blocks_of(trace.requests[0]).keys
    wrong = [
        StoreRecord(RecordClass.BLOCK, key, (index + 1) * 64, bytes(64), Provenance.REPLAYED)
        for index, key in enumerate(keys)
    ]
    assert stage.client.store(namespace, wrong).counts == {"stored": len(keys)}
    assert main(["replay", "sample", "--url", stage.url, "--namespace", "mine"]) == 1
    output = capsys.readouterr()
    assert "are not those that were stored" in output.err
    assert "0 of 312 requests" in output.out, "what there was until then is printed all the same"


def test_a_profile_nobody_knows(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "sample", "--url", stage.url, "--profile", "lama-3-8b/bf16"]) == 2
    assert "llama-3-8b/bf16" in capsys.readouterr().err


def test_ctrl_c_prints_what_there_is(stage: Stage) -> None:
    """At the trace's own speed the sample takes two hours; it is interrupted after its first request."""
    command = [sys.executable, "-m", "service.cli.main", "replay", "sample", "--url", stage.url, "--speed", "1"]
    folder = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'clients'}"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        waited, pause = 0.0, threading.Event()
        while not stage.metric("kvshelf_requests_total") and waited < 60:
            waited += 0.05
            pause.wait(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; this is what there was until then" in errors
    assert "of 312 requests of sample" in output
    assert "Traceback" not in errors
