"""The manifests: valid against the schemas of Kubernetes, they find each other, and their settings are settings."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.settings import load_settings
from tests.support.deployed import DEPLOY

BASE = DEPLOY / "kubernetes" / "base"
OVERLAYS = sorted((DEPLOY / "kubernetes" / "overlays").iterdir())
NAME = {"app.kubernetes.io/name": "kvshelf"}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def kustomization(directory: Path) -> dict[str, Any]:
    (document,) = documents(directory / "kustomization.yaml")
    return document


def resources() -> dict[str, dict[str, Any]]:
    """The base's resources by kind."""
    return {
        document["kind"]: document for name in kustomization(BASE)["resources"] for document in documents(BASE / name)
    }


def container() -> dict[str, Any]:
    (only,) = resources()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("kind", list(resources()))
def test_kubernetes_knows_the_resource(kind: str) -> None:
    resource = resources()[kind]
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**resource, "spce": {}}, kubernetes_validate.latest_version(), strict=True)


def test_everything_that_is_named_is_there() -> None:
    for directory in (BASE, *OVERLAYS):
        document = kustomization(directory)
        named = document["resources"] + [f for made in document.get("configMapGenerator", []) for f in made["files"]]
        assert all((directory / name).resolve().exists() for name in named)
        there = {path.name for path in directory.iterdir()} - {"kustomization.yaml"}
        assert there == {name for name in named if "/" not in name}, "each file is of some use"


def test_selectors_select_the_nodes_and_nothing_else() -> None:
    kinds = resources()
    assert kinds["StatefulSet"]["spec"]["template"]["metadata"]["labels"] == NAME
    assert kinds["StatefulSet"]["spec"]["selector"]["matchLabels"] == NAME
    assert kinds["Service"]["spec"]["selector"] == NAME
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == NAME
    assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == NAME
    assert kinds["StatefulSet"]["spec"]["serviceName"] == kinds["Service"]["metadata"]["name"]


def test_ports_and_volumes_fit_together() -> None:
    kinds, ports = resources(), {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert {port["port"] for port in kinds["NetworkPolicy"]["spec"]["ingress"][0]["ports"]} == set(ports.values())
    assert {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]} == set(ports)
    pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
    claims = {claim["metadata"]["name"] for claim in kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    volumes = {volume["name"] for volume in pod["volumes"]} | claims
    assert {mount["name"] for mount in container()["volumeMounts"]} == volumes
    assert all(
        container()[probe]["httpGet"]["port"] == "http" for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    )


def test_the_pod_may_do_nothing_it_need_not() -> None:
    pod = resources()["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    held = container()["securityContext"]
    assert held["readOnlyRootFilesystem"]
    assert not held["allowPrivilegeEscalation"]
    assert held["capabilities"] == {"drop": ["ALL"]}


def test_the_settings_leave_time_to_drain_and_room_on_the_claim() -> None:
    settings = load_settings(BASE / "kvshelf.toml", environment={})
    stateful = resources()["StatefulSet"]["spec"]
    assert settings.server.drain_seconds < stateful["template"]["spec"]["terminationGracePeriodSeconds"]
    (claim,) = stateful["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Ti"
    assert settings.store.budget_bytes <= 0.9 * 2**40
    tokens = settings.access.token_file
    assert tokens is not None, "it listens beyond its machine"
    assert str(tokens.parent) in [mount["mountPath"] for mount in container()["volumeMounts"]]
    mounts = [mount["mountPath"] for mount in container()["volumeMounts"] if mount["name"] == "data"]
    assert [str(settings.store.data_dir).startswith(mount + "/") for mount in mounts] == [True]


def test_the_monitor_scrapes_a_port_of_the_service() -> None:
    (monitor,) = documents(OVERLAYS[0] / "servicemonitor.yaml")
    names = {port["name"] for port in resources()["Service"]["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= names
    assert monitor["spec"]["selector"]["matchLabels"] == resources()["Service"]["metadata"]["labels"] == NAME
