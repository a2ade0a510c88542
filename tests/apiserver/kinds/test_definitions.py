"""What a definition does to the cluster around it: what is served, stored and told to who listens."""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.storage.store import Change
from tests.apiserver.kinds.embedded import Embedded

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# As Volcano and KAI define theirs: subgroups in a list, quantities, a status that anybody may extend.
VOLCANO: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "shortNames": ["pg"]},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32", "default": 1},
                                    "minTaskMember": {
                                        "type": "object",
                                        "additionalProperties": {"type": "integer", "format": "int32"},
                                    },
                                    "minResources": {
                                        "type": "object",
                                        "additionalProperties": {
                                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                                            "x-kubernetes-int-or-string": True,
                                        },
                                    },
                                    "subGroups": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "minMember": {"type": "integer", "minimum": 1},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def group(name: str = "train", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_a_peers_pod_groups_are_served_from_the_definition_on() -> None:
    embedded = Embedded()
    assert embedded.send("POST", GROUPS, group())[0] == 404
    embedded.send("POST", DEFINITIONS, VOLCANO)

    code, made = embedded.send("POST", GROUPS, group(minTaskMember={"worker": 3}, minResources={"cpu": 4}))
    assert (code, made["spec"]) == (
        200,
        {"minTaskMember": {"worker": 3}, "minResources": {"cpu": 4}, "minMember": 1},
    )
    code, refused = embedded.send("POST", GROUPS, group("b", subGroups=[{"minMember": 0}]))
    assert code == 422
    assert {(each["field"], each["reason"]) for each in refused["details"]["causes"]} == {
        ("spec.subGroups[0].name", "FieldValueRequired"),
        ("spec.subGroups[0].minMember", "FieldValueInvalid"),
    }


def test_two_groups_may_have_pod_groups_and_the_core_ones_stay_apart() -> None:
    embedded = Embedded()
    embedded.send("POST", DEFINITIONS, VOLCANO)
    embedded.send("POST", GROUPS, group())
    core = embedded.send("GET", "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", None)
    assert core[1]["items"] == []


def test_who_listens_hears_a_definition_made_and_then_established() -> None:
    embedded = Embedded()
    heard: list[Change] = []
    embedded.registry.store.subscribe(heard.append, "apiextensions.k8s.io/customresourcedefinitions")
    embedded.send("POST", DEFINITIONS, VOLCANO)
    embedded.send("DELETE", f"{DEFINITIONS}/podgroups.scheduling.volcano.sh", None)
    told = [
        (
            change.type,
            [each["type"] for each in change.item.decode()["status"]["conditions"] or ()],
        )
        for change in heard
    ]
    accepted = ["NamesAccepted", "Established"]
    assert told == [
        ("ADDED", []),
        ("MODIFIED", accepted),
        ("MODIFIED", [*accepted, "Terminating"]),
        ("DELETED", [*accepted, "Terminating"]),
    ]


def test_the_objects_go_with_their_definition() -> None:
    embedded = Embedded()
    embedded.send("POST", DEFINITIONS, VOLCANO)
    embedded.send("POST", GROUPS, group() | {"metadata": {"name": "kept", "finalizers": ["a.io/b"]}})
    heard: list[Change] = []
    embedded.registry.store.subscribe(heard.append, "scheduling.volcano.sh/podgroups")
    embedded.send("DELETE", f"{DEFINITIONS}/podgroups.scheduling.volcano.sh", None)

    assert [(change.type, change.item.name) for change in heard] == [("DELETED", "kept")]
    assert embedded.send("GET", GROUPS, None) == (404, "404 page not found\n")
    embedded.send("POST", DEFINITIONS, VOLCANO)
    assert embedded.send("GET", GROUPS, None)[1]["items"] == []


def test_a_tried_definition_is_not_served() -> None:
    embedded = Embedded()
    assert embedded.send("POST", f"{DEFINITIONS}?dryRun=All", VOLCANO)[0] == 200
    assert embedded.send("GET", GROUPS, None)[0] == 404


def test_cel_rules_are_accepted_with_a_warning_that_they_are_not_evaluated() -> None:
    embedded = Embedded()
    definition = {**VOLCANO, "spec": dict(VOLCANO["spec"])}
    version = dict(VOLCANO["spec"]["versions"][0])
    version["schema"] = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-validations": [{"rule": "false", "message": "never"}],
        }
    }
    definition["spec"]["versions"] = [version]
    embedded.send("POST", DEFINITIONS, definition)
    assert "does not evaluate" in embedded.warning
    assert embedded.send("POST", GROUPS, group())[0] == 200


def test_a_protected_group_needs_approval() -> None:
    embedded = Embedded()
    definition = {**VOLCANO, "metadata": {"name": "podgroups.mine.k8s.io"}}
    definition["spec"] = {**VOLCANO["spec"], "group": "mine.k8s.io"}
    code, refused = embedded.send("POST", DEFINITIONS, definition)
    assert code == 422
    assert refused["message"].endswith(
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have "
        'approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
    )
