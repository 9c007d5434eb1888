"""Importing the client keeps no engine waiting: what takes long to import is imported when it is first needed."""

import subprocess
import sys

SLOW = {"asyncio", "concurrent.futures", "email", "grpc", "http.client", "google.protobuf", "ssl", "urllib.request"}
MOST_CPU_SECONDS = 0.3
"""It takes about 0.07 on a busy core; three times that and more is something new."""

_PROGRAM = """
import sys, time
began = time.process_time()
import kvshelf_client
print(time.process_time() - began, *sys.modules)
"""


def test_importing_the_client_takes_little_and_brings_little() -> None:
    runs = [subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True) for _ in "123"]
    seconds, modules = zip(*((run.stdout.split()[0], run.stdout.split()[1:]) for run in runs), strict=True)
    assert not SLOW.intersection(modules[0])
    assert min(map(float, seconds)) < MOST_CPU_SECONDS
