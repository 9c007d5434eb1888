"""``make proto``: generate the Python of ``kvshelf.v1`` and its types from the ``.proto``.

protoc puts a check at the head of its code that refuses every protobuf runtime older than itself. An inference server
has its own protobuf, often older than our compiler, and these messages need nothing new: the check is taken out.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "clients/kvshelf_client/grpc"
PROTO = "kvshelf/v1/kvshelf.proto"
GENERATED = ("kvshelf/v1/kvshelf_pb2.py", "kvshelf/v1/kvshelf_pb2.pyi")
_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version.*?\n|^_runtime_version\.ValidateProtobufRuntimeVersion\(.*?^\)\n",
    re.MULTILINE | re.DOTALL,
)
_MODULE = "'kvshelf.v1.kvshelf_pb2'"
_PYTHON_MODULE = "'kvshelf_client.grpc.kvshelf.v1.kvshelf_pb2'"


def generate() -> dict[str, str]:
    """The text of each generated file, by its path below the sources."""
    with tempfile.TemporaryDirectory() as directory:
        plugin = Path(sys.executable).with_name("protoc-gen-mypy")
        outputs = (f"--python_out={directory}", f"--mypy_out=quiet:{directory}", f"--plugin=protoc-gen-mypy={plugin}")
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCES}", *outputs, PROTO], check=True)
        texts = {name: (Path(directory) / name).read_text() for name in GENERATED}
    code = GENERATED[0]
    texts[code] = _CHECK.sub("", texts[code]).replace(_MODULE, _PYTHON_MODULE)
    return texts


if __name__ == "__main__":
    for name, text in generate().items():
        (SOURCES / name).write_text(text)
