"""The frame parser under atheris: whatever bytes come, cut anywhere, it yields frames that came, or refuses.

Atheris ends its process when it is done, so that it runs in one of its own (``python -m tests.load.soak.frames``).
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["kvshelf_client"]):
    from kvshelf_client.errors import FrameError
    from kvshelf_client.frames import HEADER_BYTES, FrameAssembler, FrameHeader, FrameKind, checksum_of, pack_header
    from kvshelf_client.words import Provenance
from tests.load.soak.base import Progress, Summary, Trial

MAX_PAYLOAD_BYTES = 4096
MAX_INPUT_BYTES = 1024
_SEALED_BYTES = HEADER_BYTES - 8
"""What of a header its own checksum is of."""


def seal(data: bytes) -> bytes:
    """Mend the checksum of a leading header, which no mutation would ever hit: what lies behind it is then tried."""
    if len(data) < HEADER_BYTES:
        return data
    return data[:_SEALED_BYTES] + checksum_of(data[:_SEALED_BYTES]).to_bytes(8, "little") + data[HEADER_BYTES:]


def parse(data: bytes, cut_bytes: int) -> tuple[list[bytes], bool]:
    """What the parser makes of bytes that come in pieces: the frames, as they would be sent, and whether it refused."""
    assembler = FrameAssembler(MAX_PAYLOAD_BYTES)
    frames: list[bytes] = []
    try:
        for start in range(0, len(data), cut_bytes):
            for frame in assembler.feed(data[start : start + cut_bytes]):
                assert len(frame.payload) == frame.header.length_bytes <= MAX_PAYLOAD_BYTES
                frames.append(pack_header(frame.header) + frame.payload)
    except FrameError:
        return frames, True
    assert assembler.at_boundary == (sum(map(len, frames)) == len(data))
    return frames, False


def check(data: bytes) -> None:
    """One input: cut differently it means the same, and the frames are the bytes that came."""
    if not data:
        return
    cut_bytes, stream = data[0] + 1, data[1:]
    for tried in (stream, seal(stream)):
        frames, _ = whole = parse(tried, max(1, len(tried)))
        assert parse(tried, cut_bytes) == whole
        assert tried.startswith(b"".join(frames))


def _seeds(directory: Path) -> None:
    for number, kind in enumerate(FrameKind):
        payload = bytes(range(48))
        header = FrameHeader(kind, bytes(32), len(payload), checksum_of(payload), Provenance.EXACT, 0, 128)
        one = pack_header(header) + payload
        (directory / str(number)).write_bytes(bytes([number * 37]) + one + one)


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Try inputs for ``count`` seconds. The seed decides them, as far as the machine's speed does not."""
    progress(0, "in a process of its own")
    with tempfile.TemporaryDirectory() as directory:
        _seeds(Path(directory))
        options = [f"-max_total_time={count}", f"-seed={seed + 1}", f"-max_len={MAX_INPUT_BYTES}", "-verbosity=1"]
        options += [f"-artifact_prefix={directory}/", "-print_final_stats=1", "-rss_limit_mb=1024", "-timeout=10"]
        command = [sys.executable, "-m", "tests.load.soak.frames", *options, directory]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=count + 120)
    summary = Summary()
    executed = re.search(r"number_of_executed_units: +(\d+)|Done (\d+) runs", done.stderr)
    summary.tried["inputs"] = int(executed[1] or executed[2]) if executed else 0
    if done.returncode or not executed:
        summary.failures.append(f"status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return summary


TRIAL = Trial(
    name="frames",
    about="no bytes make the frame parser fail, loop, or yield what did not come",
    unit="seconds",
    full=240,
    run=run,
)

if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
