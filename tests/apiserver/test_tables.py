"""Cells that are computed, at a moment the test chooses; what both servers print alike is in the contract."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.storage.codec import encode
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.tables import custom
from gangsched.lab.apiserver.tables.ages import human_duration, since
from gangsched.lab.apiserver.tables.printer import Printer, Tables, check_include

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.fixture
def registry() -> Registry:
    return Registry(now=lambda: NOW, rng=Random(1))


def item(obj: dict[str, Any]) -> Item:
    meta = obj.setdefault("metadata", {})
    meta.setdefault("name", "a")
    return Item("", meta["name"], "", 1, encode(obj), {}, {})


def rows(printer: Printer, *objects: dict[str, Any], **rest: Any) -> list[dict[str, Any]]:
    table = json.loads(
        printer.table([item(each) for each in objects], {}, NOW, show=lambda shown: shown.raw, **rest)
    )
    found: list[dict[str, Any]] = table["rows"]
    return found


def cells(registry: Registry, resource: str, obj: dict[str, Any]) -> list[Any]:
    of = registry.resource(resource)
    [row] = rows(Tables(registry).printer(of, of.version), obj)
    shown: list[Any] = row["cells"]
    return shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 30, "2m30s"),
        (10 * MINUTE + 30, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 5 * HOUR, "7d5h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (2 * 365 * DAY - 1, "729d"),
        (3 * 365 * DAY + 40 * DAY, "3y40d"),
        (25 * 365 * DAY + 40 * DAY, "25y"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_are_since_creation_or_unknown() -> None:
    assert since("2026-01-02T11:59:00Z", NOW) == "60s"
    assert since("2026-01-02T11:59:00.123456Z", NOW) == "59s"
    assert (since(None, NOW), since("", NOW), since("yesterday", NOW)) == (
        "<unknown>",
        "<unknown>",
        "<invalid>",
    )


def status_of(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, **fields}


def test_a_sidecar_counts_as_a_container(registry: Registry) -> None:
    spec = {
        "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}],
        "containers": [{"name": "main"}],
    }
    started = status_of("side", ready=True, started=True, restartCount=2, state={"running": {}})
    pod = {
        "spec": spec,
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [started, status_of("once", state={"running": {}})],
        },
    }
    assert cells(registry, "pods", pod)[1:4] == ["1/2", "Init:1/2", "2"]
    pod["status"] = {
        "phase": "Running",
        "initContainerStatuses": [
            started,
            status_of("once", restartCount=5, state={"terminated": {"exitCode": 0}}),
        ],
        "containerStatuses": [status_of("main", ready=True, state={"running": {}})],
    }
    # Restarts of what ran once and is done are not told any more.
    assert cells(registry, "pods", pod)[1:4] == ["2/2", "Running", "2"]


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"exitCode": 1, "reason": "Error"}, "Init:Error"),
        ({"exitCode": 1, "signal": 9}, "Init:Signal:9"),
        ({"exitCode": 4}, "Init:ExitCode:4"),
    ],
)
def test_an_init_container_that_fails(registry: Registry, ended: dict[str, Any], reason: str) -> None:
    pod = {
        "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "main"}]},
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [status_of("i", state={"terminated": ended})],
        },
    }
    assert cells(registry, "pods", pod)[2] == reason


def test_one_of_two_containers_is_done(registry: Registry) -> None:
    done = status_of("one", state={"terminated": {"exitCode": 0, "reason": "Completed"}})
    pod: dict[str, Any] = {
        "spec": {"containers": [{"name": "one"}, {"name": "two"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [done, status_of("two", ready=True, state={"running": {}})],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert cells(registry, "pods", pod)[1:3] == ["1/2", "Running"]
    pod["status"]["conditions"] = []
    assert cells(registry, "pods", pod)[1:3] == ["1/2", "NotReady"]


def test_readiness_gates_and_lost_nodes(registry: Registry) -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "deletionTimestamp": "2026-01-02T11:00:00Z"},
        "spec": {
            "containers": [{"name": "m"}],
            "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}],
        },
        "status": {"phase": "Running", "reason": "NodeLost", "conditions": [{"type": "a", "status": "True"}]},
    }
    shown = cells(registry, "pods", pod)
    assert (shown[2], shown[8]) == ("Unknown", "1/2")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"spec": {"completions": 3}, "status": {"succeeded": 1}}, ["Running", "1/3", ""]),
        ({"spec": {"parallelism": 4}, "status": {}}, ["Running", "0/1 of 4", ""]),
        (
            {"spec": {"parallelism": 1}, "status": {"startTime": "2026-01-02T11:58:30Z"}},
            ["Running", "0/1", "90s"],
        ),
        (
            {
                "spec": {"completions": 1},
                "status": {
                    "succeeded": 1,
                    "startTime": "2026-01-02T11:00:00Z",
                    "completionTime": "2026-01-02T11:00:07Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["Complete", "1/1", "7s"],
        ),
        (
            {"spec": {"completions": 1}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
            ["Suspended", "0/1", ""],
        ),
    ],
)
def test_what_a_job_says(registry: Registry, obj: dict[str, Any], expected: list[str]) -> None:
    assert cells(registry, "jobs.batch", obj)[1:4] == expected


def test_a_load_balancer_and_its_ports(registry: Registry) -> None:
    service: dict[str, Any] = {
        "spec": {
            "type": "LoadBalancer",
            "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            "selector": {"b": "c", "a": "b"},
        },
    }
    shown = cells(registry, "services", service)
    assert shown[1:5] == ["LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/UDP"]
    assert shown[6] == "a=b,b=c"
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "lb"}]}}
    assert cells(registry, "services", service)[3] == "1.2.3.4,lb"


def test_what_a_pod_group_says(registry: Registry) -> None:
    group: dict[str, Any] = {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": {"workloadName": "w"}},
        "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]},
    }
    assert cells(registry, "podgroups.scheduling.k8s.io", group)[1:4] == ["Gang", "w", "Scheduled"]
    group["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}
    )
    assert cells(registry, "podgroups.scheduling.k8s.io", group)[3] == "Preempted"


def test_flow_schemas_are_in_the_order_of_their_precedence(registry: Registry) -> None:
    of = registry.resource("flowschemas.flowcontrol.apiserver.k8s.io")
    flows = [
        {"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}}
        for name, precedence in (("a", 900), ("b", 100))
    ]
    assert [row["cells"][0] for row in rows(Tables(registry).printer(of, of.version), *flows)] == ["b", "a"]


OBJECT = {
    "metadata": {"name": "a", "creationTimestamp": "2026-01-02T11:59:00Z", "labels": {"x.y/z": "label"}},
    "spec": {"n": 3, "f": 1.5, "yes": True, "text": "t", "list": [{"a": 1}, {"a": 2}], "none": None},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "False", "since": "2026-01-02T11:00:00Z"},
            {"type": "Done", "status": "True"},
        ]
    },
}


@pytest.mark.parametrize(
    ("type_", "path", "expected"),
    [
        ("integer", ".spec.n", 3),
        ("integer", ".spec.f", 1),
        ("number", ".spec.f", 1.5),
        ("integer", ".spec.text", None),
        ("integer", ".spec.yes", None),
        ("boolean", ".spec.yes", True),
        ("boolean", ".spec.text", None),
        ("string", ".spec.text", "t"),
        ("string", ".spec.n", "3"),
        ("string", ".spec.yes", "true"),
        ("string", ".spec.list", '[{"a":1},{"a":2}]'),
        ("string", ".spec.list[1].a", "2"),
        ("string", ".spec.list[-1].a", "2"),
        ("string", ".spec.list[7].a", None),
        ("string", ".spec.list[*].a", "1"),
        ("string", ".spec.nothing.at.all", None),
        ("string", ".spec.none", None),
        ("string", r".metadata.labels.x\.y/z", "label"),
        ("string", ".metadata.labels['x.y/z']", "label"),
        ("string", ".status.conditions[?(@.type=='Ready')].status", "False"),
        ("string", '.status.conditions[?(@.type == "Done")].status', "True"),
        ("string", ".status.conditions[?(@.type!='Ready')].status", "True"),
        ("date", ".metadata.creationTimestamp", "60s"),
        ("date", ".spec.text", "<invalid>"),
        ("date", ".spec.n", None),
        ("string", "..recursive", None),
    ],
)
def test_columns_of_a_definition(type_: str, path: str, expected: Any) -> None:
    printer = Printer(custom.kind_of([{"name": "C", "type": type_, "jsonPath": path}]))
    [row] = rows(printer, json.loads(json.dumps(OBJECT)))
    assert row["cells"] == ["a", expected]


def test_a_definition_s_columns_follow_its_changes(registry: Registry) -> None:
    resource = Resource("example.com", ("v1",), "widgets", "widget", "Widget", True, custom=True)
    tables = Tables(registry)
    assert [column.name for column in tables.printer(resource, "v1").columns] == ["Name", "Age"]

    def version(column: str) -> dict[str, Any]:
        columns = [{"name": column, "type": "string", "jsonPath": ".spec.x"}]
        return {"spec": {"versions": [{"name": "v1", "additionalPrinterColumns": columns}]}}

    definitions = registry.resource("customresourcedefinitions.apiextensions.k8s.io")
    sent = {"metadata": {"name": "widgets.example.com"}, **version("First")}
    registry.create(definitions, sent)
    assert [column.name for column in tables.printer(resource, "v1").columns] == ["Name", "First"]
    assert tables.printer(resource, "v1") is tables.printer(resource, "v1")
    registry.modify(definitions, "", "widgets.example.com", lambda obj: obj.update(version("Second")))
    assert [column.name for column in tables.printer(resource, "v1").columns] == ["Name", "Second"]


def test_what_a_table_says_around_its_rows(registry: Registry) -> None:
    of = registry.resource("namespaces")
    printer = Tables(registry).printer(of, "v1")
    made = json.loads(
        printer.table([], {"resourceVersion": "7"}, NOW, show=lambda shown: shown.raw, version="v1beta1")
    )
    assert (made["kind"], made["apiVersion"]) == ("Table", "meta.k8s.io/v1beta1")
    assert (made["metadata"], made["rows"]) == ({"resourceVersion": "7"}, [])
    later = json.loads(printer.table([], {}, NOW, show=lambda shown: shown.raw, headers=False))
    assert later["columnDefinitions"] is None
    end = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
    [mark] = json.loads(printer.bookmark(end, NOW))["rows"]
    assert mark["cells"] == ["", "", "<unknown>"]
    assert mark["object"]["metadata"] == end


def test_how_much_of_an_object_a_row_carries(registry: Registry) -> None:
    printer = Tables(registry).printer(registry.resource("namespaces"), "v1")
    obj = {"metadata": {"name": "a"}, "status": {"phase": "Active"}}
    assert rows(printer, obj, include="Object")[0]["object"] == obj
    assert rows(printer, obj, include="None")[0]["object"] is None
    partial = rows(printer, obj)[0]["object"]
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a"},
    }
    assert check_include("") == "Metadata"
    with pytest.raises(StatusError, match="includeObject"):
        check_include("Some")
