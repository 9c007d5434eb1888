"""The generated code is that of the ``.proto``, and works where an inference server has an older protobuf."""

from service.grpc.gate import SERVICE
from service.grpc.verbs.table import VERBS
from tests.support.proto import SOURCES, generate


def test_the_generated_code_is_up_to_date() -> None:
    stale = [name for name, text in generate().items() if (SOURCES / name).read_text() != text]
    assert not stale, "run make proto"


def test_an_older_protobuf_is_not_refused() -> None:
    assert "runtime_version" not in (SOURCES / "kvshelf/v1/kvshelf_pb2.py").read_text()


def test_every_verb_is_served_in_its_own_way() -> None:
    assert set(VERBS) == {method.name for method in SERVICE.methods}
    for method in SERVICE.methods:
        verb = VERBS[method.name]
        ways = (verb.unary, verb.download, verb.upload)
        assert [way is not None for way in ways] == [
            not method.client_streaming and not method.server_streaming,
            method.server_streaming,
            method.client_streaming,
        ]
