"""The boundary of a principal: the tenant that it works in, and the data that it sees."""

from __future__ import annotations

import pytest

from arclog.model.config.settings import Settings
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.storage.store import Scope

SETTINGS = Settings({"scope.tenant": "acme"})


def bound(tenant: str, project: str = "", environment: str = "") -> Boundary:
    return Boundary.of(
        Principal("key", tenant, frozenset({"admin"}), project=project, environment=environment), SETTINGS
    )


def test_a_principal_works_in_its_tenant_alone() -> None:
    assert bound("acme").owns("acme")
    assert not bound("acme").owns("other")
    assert bound("acme").works_in(Scope("acme", "shop", "live"))
    assert not bound("acme").works_in(Scope("other", "shop", "live"))


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope("acme", "shop", "live"), True),
        (Scope("acme", "shop", "test"), False),
        (Scope("acme", "other", "live"), False),
        (Scope("other", "shop", "live"), False),
    ],
)
def test_a_bound_principal_works_in_its_project_and_environment(scope: Scope, expected: bool) -> None:
    assert bound("acme", "shop", "live").works_in(scope) is expected


def test_the_owner_of_a_store_sees_all_tenants_and_works_in_that_of_the_settings() -> None:
    owner = Boundary.owner(SETTINGS)
    assert owner.sees(Scope("other", "p", "e"))
    assert owner.owns("acme")
    assert not owner.owns("other")
    assert not owner.works_in(Scope("other", "p", "e"))
