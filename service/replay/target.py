"""What is replayed against, and under which namespace."""

import hashlib
import json
import re
from dataclasses import dataclass

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.requests import NamespaceSpec
from service.replay.errors import ReplayError
from service.traces.base import Trace
from service.traces.chain import HASH_SCHEME

_MAX_NAME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace to replay in.

    Args:
        profile: a profile's id, or a profile written out.
        bytes_per_token: size of the records; None for the profile's own.
        salt: replays of the same salt find what the ones before them stored.
        shards: tensor-parallel ranks to store for.
    """

    profile: str | dict[str, object]
    bytes_per_token: int | None
    salt: str
    shards: int = 1

    def spec_for(self, trace: Trace) -> NamespaceSpec:
        """What to register: the trace's block size and hashes made from its ids."""
        model = self.profile if isinstance(self.profile, str) else str(self.profile.get("id", "own profile"))
        return NamespaceSpec(
            tenant=None,
            model=model,
            weights_revision="replay",
            profile=self.profile,
            block_tokens=trace.block_tokens,
            bytes_per_token=self.bytes_per_token,
            hash_scheme=HASH_SCHEME,
            salt=self.salt,
            shards=self.shards,
        )

    def register(self, client: Client, name: str, trace: Trace) -> Namespace:
        """Register the namespace with a strict client, which raises where it comes to nothing."""
        namespace = client.register(name, self.spec_for(trace))
        if namespace is None:
            raise ReplayError("the service did not register the namespace")
        return namespace

    def name_for(self, trace: Trace) -> str:
        """A name that is another one for every trace's name and every setting."""
        settings = [self.profile, self.bytes_per_token, self.salt, self.shards, trace.block_tokens, trace.name]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", trace.name)[:_MAX_NAME_LENGTH]
        return f"replay-{stem}-{digest}"
