"""The compose file: valid by the specification's schema, and every name, command and variable in it means something."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from arclog.cli.args import parser_of
from arclog.model.config.settings import TABLE
from arclog.secrets.seal import KEY_BYTES, KeyFile

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("arclog")}


def test_the_specification_takes_it():
    done = subprocess.run(
        [Path(sys.prefix) / "bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_the_cluster_that_it_says_it_is():
    replicas = {name: service.get("deploy", {}).get("replicas", 1) for name, service in SERVICES.items()}
    assert (replicas["postgres"], replicas["nats"], replicas["server"]) == (1, 1, 2)
    workers = {name: service for name, service in SERVICES.items() if service.get("command", [""])[0] == "worker"}
    assert sum(replicas[name] for name in workers) == 3
    assert len({service["command"][2] for service in workers.values()}) == 2


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_services(name: str):
    service = OURS[name]
    if "entrypoint" not in service:
        command, *rest = service["command"]
        parser_of(command).parse(rest)
    variables = {row.variable for row in TABLE} | {f"{row.variable}_FILE" for row in TABLE}
    assert {variable for variable in service.get("environment", {}) if variable.startswith("ARCLOG_")} <= variables
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    build = service["build"]
    assert ((DEPLOY / build["context"]).resolve() / build["dockerfile"]).exists()


def test_the_keys_are_made_by_commands_that_there_are():
    (script,) = SERVICES["first-keys"]["command"]
    made = [line.split("arclog ", 1)[1].split(" > ")[0].split() for line in script.splitlines() if "arclog " in line]
    assert len(made) == 2
    for command, *rest in made:
        parser_of(command).parse(rest)
    assert subprocess.run(["sh", "-n", "-c", script]).returncode == 0


def test_every_volume_secret_and_service_that_is_named_is_there():
    for service in SERVICES.values():
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        assert {volume.split(":")[0] for volume in service.get("volumes", ())} <= set(COMPOSE["volumes"])
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES
            if condition["condition"] == "service_healthy":
                own = SERVICES[other].get("healthcheck")
                assert own is None or "test" in own, f"{other} has no health to wait for"
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])


def test_a_worker_never_sees_the_admins_key_nor_the_store():
    for name, service in SERVICES.items():
        if service.get("command", [""])[0] == "worker":
            assert service.get("secrets") == ["secrets_key"], name
            assert not any("admin" in volume for volume in service["volumes"])


def test_all_servers_and_workers_are_given_one_key():
    having = [service for service in OURS.values() if service.get("command", [""])[0] in ("server", "worker")]
    assert len(having) == 3
    for service in having:
        assert service["environment"]["ARCLOG_SECRETS_KEY_FILE"] == "/run/secrets/secrets_key"
        assert "secrets_key" in service["secrets"]


def test_only_loopback_is_published():
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_servers_are_given_longer_than_they_drain():
    drain = next(row.default for row in TABLE if row.name == "server.drain_s")
    assert int(SERVICES["server"]["stop_grace_period"].removesuffix("s")) > drain


def test_the_secrets_are_made_once_and_fit_each_other(tmp_path: Path):
    shutil.copy(DEPLOY / "secrets.sh", tmp_path)
    subprocess.run([tmp_path / "secrets.sh"], check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    files = {name: Path(secret["file"]).name for name, secret in COMPOSE["secrets"].items()}
    assert set(files.values()) == set(made)
    database = SERVICES["postgres"]["environment"]
    user, name, password = database["POSTGRES_USER"], database["POSTGRES_DB"], made["postgres_password"]
    assert len(password) == 48
    key = KeyFile(tmp_path / "secrets/secrets_key")
    with pytest.MonkeyPatch.context() as patched:
        # In a container it belongs to somebody else, which is why it may be readable by all.
        patched.setattr(os, "geteuid", lambda: 10001)
        assert len(key.load() or b"") == KEY_BYTES
    assert made["store_url"] == f"postgresql://{user}:{password}@postgres/{name}"
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    subprocess.run([tmp_path / "secrets.sh"], check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made
