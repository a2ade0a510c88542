"""The configuration in the cluster is the one that is documented, with leader election on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gangsched.config import parse_config
from gangsched.kube.election.fence_keeper import fence_name
from gangsched.kube.election.other_scheduler import SUFFIX
from gangsched.plugins import IN_TREE

REPO = Path(__file__).parents[2]
DOCUMENTED = REPO / "config" / "scheduler.yaml"
DEPLOYED = REPO / "deploy" / "config" / "scheduler.yaml"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_the_deployed_configuration_is_the_documented_one_with_a_leader() -> None:
    documented, deployed = documents(DOCUMENTED), documents(DEPLOYED)
    documented[0]["leaderElection"]["leaderElect"] = True
    assert deployed == documented


def test_it_is_read_and_its_lease_is_the_one_that_the_role_names() -> None:
    config = parse_config(DEPLOYED.read_text(), source="", plugins=IN_TREE)
    roles = yaml.safe_load_all((REPO / "deploy" / "rbac.yaml").read_text())
    [role] = [document for document in roles if document["kind"] == "Role"]
    named = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    election = config.leader_election
    assert election.leader_elect
    beside = [f"{election.resource_name}{of}" for of in ("-queues", SUFFIX)]
    assert named == [election.resource_name, fence_name(election), *beside]
    assert config.settings.fence
    assert role["metadata"]["namespace"] == election.resource_namespace
