"""The KubeRay manifest fits the RayService schema; its parts agree with each other and the project."""

from __future__ import annotations

import json
import tomllib
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


@pytest.fixture
def manifest() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "rayservice.yaml").read_text()))


@pytest.fixture
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / "tests/data/rayservice_v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def pod_specs(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = manifest["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_the_manifest_fits_the_schema(
    manifest: dict[str, Any], validator: jsonschema.Draft202012Validator
) -> None:
    assert [error.message for error in validator.iter_errors(manifest)] == []


@pytest.mark.parametrize("field", ["serveConfig", "replicas", "serveService2"])
def test_the_schema_refuses_a_field_that_kuberay_does_not_know(
    manifest: dict[str, Any], validator: jsonschema.Draft202012Validator, field: str
) -> None:
    manifest["spec"][field] = "x"
    assert not validator.is_valid(manifest)


def test_the_schema_refuses_a_worker_group_without_bounds(
    manifest: dict[str, Any], validator: jsonschema.Draft202012Validator
) -> None:
    del manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["maxReplicas"]
    assert not validator.is_valid(manifest)


def test_ray_accepts_the_serve_config(manifest: dict[str, Any]) -> None:
    with warnings.catch_warnings():  # importing ray.serve warns about its own use of pydantic
        warnings.simplefilter("ignore")
        from ray.serve.schema import ServeDeploySchema

        config = ServeDeploySchema.model_validate(yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    served = [(app.import_path, app.route_prefix) for app in config.applications]
    assert served == [("noria.cluster:app", "/")]
    assert config.proxy_location == "Disabled"


def test_ray_of_the_manifest_is_ray_of_the_project(manifest: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = manifest["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"ray[serve]=={version}" in project["dependencies"]


def test_every_image_is_this_version_of_the_project(manifest: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {container["image"] for spec in pod_specs(manifest) for container in spec["containers"]}
    assert images == {f"noria:{version}"}


def test_every_pod_runs_without_privileges(manifest: dict[str, Any]) -> None:
    for spec in pod_specs(manifest):
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_every_pod_offers_the_port_of_the_settings_and_mounts_what_exists(manifest: dict[str, Any]) -> None:
    port = tomllib.loads((DEPLOY / "noria.toml").read_text())["server"]["port"]
    for spec in pod_specs(manifest):
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {"name": "serve", "containerPort": port} in container["ports"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_secrets_come_from_the_cluster_only(manifest: dict[str, Any]) -> None:
    for spec in pod_specs(manifest):
        for container in spec["containers"]:
            by_name = {variable["name"]: variable for variable in container["env"]}
            for name in (
                "NORIA_DATABASE_URL",
                "NORIA_ADMIN_KEY",
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
            ):
                assert set(by_name[name]["valueFrom"]) == {"secretKeyRef"}
                assert "value" not in by_name[name]


def test_kustomize_lists_files_and_claims_that_exist(manifest: dict[str, Any]) -> None:
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    generated = {item["name"]: item["files"] for item in kustomization["configMapGenerator"]}
    for name in [*kustomization["resources"], *(name for files in generated.values() for name in files)]:
        assert (DEPLOY / name).is_file()
    documents = yaml.safe_load_all((DEPLOY / "volumes.yaml").read_text())
    claims = {document["metadata"]["name"] for document in documents}
    volumes = [volume for spec in pod_specs(manifest) for volume in spec["volumes"]]
    assert {v["configMap"]["name"] for v in volumes if "configMap" in v} <= set(generated)
    mounted = [v["persistentVolumeClaim"] for v in volumes if "persistentVolumeClaim" in v]
    assert {claim["claimName"] for claim in mounted} == claims


def test_a_new_version_that_never_becomes_healthy_takes_no_traffic(manifest: dict[str, Any]) -> None:
    """KubeRay then keeps the old cluster until the new one is ready; in place it would stop pods first."""
    assert manifest["spec"]["upgradeStrategy"] == {"type": "NewCluster"}
