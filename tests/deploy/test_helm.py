"""The chart: linted, rendered and sent by the real Helm; every object judged by Kubernetes' own schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from arclog import __version__
from arclog.cli.args import parser_of
from arclog.model.config.settings import TABLE
from tests.servers.kubernetes import Helm, HelmRefused

CHART = Path(__file__).parents[2] / "deploy/helm/arclog"
#: Oldest (Chart.yaml's kubeVersion) and newest that the objects must fit.
KUBERNETES = ("1.27", "1.37")
#: Not Kubernetes' own: nobody ships their schemas as a package.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
WORKER = yaml.safe_load((CHART / "values.yaml").read_text())["workers"][0]
EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"ARCLOG_SERVER_DRAIN_S": 15, "ARCLOG_AUTH_MODE": "required"},
    "extraEnv": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    "server": {
        "autoscaling": {"enabled": True},
        "podAnnotations": {"a/b": "c"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "workers": [
        {**WORKER, "pool": "default", "autoscaling": {**WORKER["autoscaling"], "kind": "hpa"}},
        {
            **WORKER,
            "pool": "gpu_A.1",
            "autoscaling": {**WORKER["autoscaling"], "kind": "keda"},
            "nodeSelector": {"gpu": "yes"},
        },
        {**WORKER, "pool": "heavy", "secretsKey": True, "tolerations": [{"operator": "Exists"}]},
    ],
    "service": {"annotations": {"x": "y"}},
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"x": "y"}, "tlsSecret": "tls"},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]},
    "serviceAccount": {"annotations": {"x": "y"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm]:
    with Helm() as helm:
        yield helm


@pytest.fixture(scope="module")
def plain(helm: Helm) -> list[dict[str, Any]]:
    return helm.install(CHART, release="plain")


@pytest.fixture(scope="module")
def everything(helm: Helm) -> list[dict[str, Any]]:
    return helm.install(CHART, EVERYTHING, release="all")


def named(objects: list[dict[str, Any]], kind: str, part: str = "") -> dict[str, Any]:
    (only,) = [resource for resource in objects if resource["kind"] == kind and part in resource["metadata"]["name"]]
    return only


def containers(objects: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        (resource["spec"]["template"]["spec"], container)
        for resource in objects
        if resource["kind"] == "Deployment"
        for container in resource["spec"]["template"]["spec"]["containers"]
    ]


def test_helm_lint_has_nothing_to_say(helm: Helm):
    assert helm.lint(CHART) == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_fits_kubernetes(plain: list[dict[str, Any]], everything: list[dict[str, Any]], version: str):
    kinds = set()
    for resource in [*plain, *everything]:
        kinds.add(resource["kind"])
        if resource["kind"] not in FOREIGN:
            kubernetes_validate.validate(resource, version, strict=True)
    assert kinds == FOREIGN | {
        "Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy",
    }  # fmt: skip


def test_what_is_not_asked_for_is_not_made(plain: list[dict[str, Any]]):
    kinds = sorted(resource["kind"] for resource in plain)
    assert kinds == [
        "Deployment", "Deployment", "NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount",
    ]  # fmt: skip


def test_every_container_runs_what_arclog_understands(plain: list[dict[str, Any]], everything: list[dict[str, Any]]):
    """Arguments parse with our own parser, and every ARCLOG_ variable is one that a start accepts."""
    settings = {row.variable for row in TABLE} | {"ARCLOG_TOKEN"}
    for _, container in containers([*plain, *everything]):
        command, *rest = container["args"]
        parser_of(command).parse(rest)
        variables = [variable["name"] for variable in container["env"]]
        assert len(variables) == len(set(variables))
        assert {name for name in variables if name.startswith("ARCLOG_")} <= settings
        assert container["image"] == f"arclog:{__version__}"


def test_every_container_is_confined(plain: list[dict[str, Any]], everything: list[dict[str, Any]]):
    for pod, container in containers([*plain, *everything]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        # A service that is called arclog would be ARCLOG_PORT to every pod, and settings refuse names they do not know.
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert written == {"/var/lib/arclog", "/tmp"}


def test_servers_are_probed_and_leave_slowly(plain: list[dict[str, Any]]):
    (pod, server), *_ = [container for container in containers(plain) if container[1]["name"] == "server"]
    paths = [server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert paths == ["/health", "/health", "/ready"]
    drain = next(row.default for row in TABLE if row.name == "server.drain_s")
    pause = int(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > drain + pause


def test_no_secret_is_written_out(everything: list[dict[str, Any]]):
    for _, container in containers(everything):
        for variable in container["env"]:
            if variable["name"] in ("ARCLOG_STORE_URL", "ARCLOG_BUS_URL", "ARCLOG_TOKEN"):
                assert set(variable) == {"name", "valueFrom"}


def test_all_servers_are_given_one_key_and_workers_that_are_to_have_it(everything: list[dict[str, Any]]):
    """As a file from the same Kubernetes secret, with rights that arclog takes: not its own file, and readable."""
    having = []
    for pod, container in containers(everything):
        key_file = {variable["name"]: variable.get("value") for variable in container["env"]}.get(
            "ARCLOG_SECRETS_KEY_FILE"
        )
        volumes = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        assert bool(key_file) == bool(volumes)
        if key_file:
            (mount,) = [volumemount for volumemount in container["volumeMounts"] if volumemount.get("readOnly")]
            ((item,),) = [volume["items"] for volume in volumes]
            assert f"{mount['mountPath']}/{item['path']}" == key_file
            assert (volumes[0]["defaultMode"], item["key"]) == (0o440, "secrets-key")
            assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
            having.append(container["args"][-1])
    assert sorted(having) == ["heavy", "server"]


def test_a_deployment_for_each_pool(everything: list[dict[str, Any]]):
    pools = {
        result["metadata"]["labels"]["arclog/pool"]: result
        for result in everything
        if result["kind"] == "Deployment" and "worker" in result["metadata"]["name"]
    }
    assert set(pools) == {"default", "gpu_A.1", "heavy"}
    assert pools["gpu_A.1"]["metadata"]["name"] == "all-arclog-worker-gpu-a-1"
    # Whoever scales a deployment owns its number of replicas.
    assert {pool: "replicas" in deployment["spec"] for pool, deployment in pools.items()} == {
        "default": False,
        "gpu_A.1": False,
        "heavy": True,
    }
    for name, deployment in pools.items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == ["worker", "--pool", name]


def test_the_service_and_the_policies_select_the_servers(plain: list[dict[str, Any]]):
    labels = named(plain, "Deployment", "server")["spec"]["template"]["metadata"]["labels"]
    workers = named(plain, "Deployment", "worker")["spec"]["template"]["metadata"]["labels"]
    chosen = [
        named(plain, "Service")["spec"]["selector"],
        named(plain, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        named(plain, "NetworkPolicy", "server")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in chosen:
        assert selector.items() <= labels.items()
        assert not selector.items() <= workers.items()


def test_a_policy_lets_workers_of_the_release_in(everything: list[dict[str, Any]]):
    (rule,) = named(everything, "NetworkPolicy", "server")["spec"]["ingress"]
    own, other = rule["from"]
    workers = named(everything, "Deployment", "heavy")["spec"]["template"]["metadata"]["labels"]
    assert own["podSelector"]["matchLabels"].items() <= workers.items()
    assert other == {"namespaceSelector": {"matchLabels": {"team": "a"}}}


def test_metrics_do_not_leave_by_the_ingress(everything: list[dict[str, Any]]):
    (rule,) = named(everything, "Ingress")["spec"]["rules"]
    assert {path["path"] for path in rule["http"]["paths"]} == {"/api", "/health", "/ready"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3},
        {"server": {"replicas": "many"}},
        {"server": {"replica": 3}},
        {"workers": [{"pool": "a b"}]},
        {"workers": [{**WORKER, "autoscaling": {"kind": "magic"}}]},
        {"settings": {"LOG_LEVEL": "debug"}},
        {"resultsUrl": "files"},
        {"existingSecret": ""},
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_values_that_make_no_sense_are_refused(helm: Helm, wrong: dict[str, Any]):
    with pytest.raises(HelmRefused, match=r"values don't meet the specifications|schema"):
        helm.install(CHART, wrong, release="wrong")


def test_the_schema_is_one_and_its_defaults_fit():
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    undocumented = set(schema["properties"]) - set(values) - {"global"}
    assert undocumented == set()


def test_the_chart_is_of_this_version_and_carries_the_alerts():
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    alerts = CHART.parents[1] / "prometheus/alerts.yaml"
    assert (CHART / "alerts.yaml").read_text() == alerts.read_text()
