"""Specs and namespaces with everything but the point of a test filled in."""

from typing import Any

from service.namespaces import Namespace, NamespaceSpec, make_namespace
from service.profiles import get_profile


def spec(**fields: Any) -> NamespaceSpec:
    """A spec of V4.1-Flash, 128 tokens a block, with some fields changed."""
    plain: dict[str, Any] = {
        "tenant": "tenant",
        "model": "model",
        "weights_revision": "revision",
        "profile": get_profile("deepseek-v4.1-flash/fp4"),
    }
    return NamespaceSpec(**plain | fields)


def namespace(**fields: Any) -> Namespace:
    """The namespace of :func:`spec`."""
    return make_namespace("test", spec(**fields))
