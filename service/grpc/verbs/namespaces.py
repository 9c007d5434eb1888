"""Register namespaces, look at them, and prove that an engine hashes alike."""

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.grpc.structs import plain
from service.faces.namespaces import register_namespace
from service.faces.problems import ProblemError
from service.faces.questions import NamespaceQuestion, checked
from service.grpc import messages
from service.grpc.call import Call


async def register(call: Call, request: pb.RegisterRequest) -> pb.Namespace:
    """Register a namespace, or find it registered alike."""
    fields = messages.present(request, without=("name", "profile_id", "profile_document"))
    if request.HasField("profile_document"):
        fields["profile"] = plain(request.profile_document)
    elif request.HasField("profile_id"):
        fields["profile"] = request.profile_id
    question = checked(NamespaceQuestion, fields)
    namespace, created = await call.context.run(
        register_namespace, call.context.parts, call.principal, request.name, question
    )
    return messages.namespace(namespace, created=created)


async def show(call: Call, request: pb.GetNamespaceRequest) -> pb.Namespace:
    """One namespace."""
    return messages.namespace(call.context.parts.namespaces.get(call.principal, request.name))


async def list_all(call: Call, request: pb.ListNamespacesRequest) -> pb.ListNamespacesResponse:  # noqa: ARG001
    """All namespaces of the caller, by name."""
    found = call.context.parts.namespaces.list_readable(call.principal)
    return pb.ListNamespacesResponse(namespaces=map(messages.namespace, found))


async def hash_tokens(call: Call, request: pb.HashRequest) -> pb.HashResponse:
    """The keys of the full blocks of a token list."""
    parts = call.context.parts
    namespace = parts.namespaces.get(call.principal, request.namespace)
    most = parts.settings.limits.max_list_items
    if len(request.tokens) > 4 * most:
        raise ProblemError(413, f"the self-test takes at most {most} tokens", field="tokens")
    keys = await call.context.run(namespace.keys_from_tokens, request.tokens, request.extra)
    return pb.HashResponse(fingerprint=namespace.fingerprint, block_tokens=namespace.layout.block_tokens, keys=keys)
