"""Custom resource definitions: how they come to be served, schemas, versions, defaults, their end."""

from __future__ import annotations

from typing import Any

from tests.contract.api import JSON, TABLE, Api, Json
from tests.contract.objects import unique

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "label": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "when": {"type": "string", "format": "date-time"},
                "port": {"x-kubernetes-int-or-string": True},
                "parts": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {"type": "object", "properties": {"a": {"type": "boolean"}}},
                },
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


class Defined:
    """A kind that this test alone uses."""

    def __init__(self, api: Api, **spec: Any) -> None:
        self.api = api
        self.plural = unique("widgets").replace("-", "")
        self.group = f"{self.plural}.example.com"
        self.name = f"{self.plural}.{self.group}"
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {"status": {}},
        }
        self.body: Json = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {
                    "plural": self.plural,
                    "kind": "Widget",
                    "shortNames": [self.plural[:1] + self.plural[7:]],
                },
                "versions": [version],
                **spec,
            },
        }

    def create(self) -> Json:
        made = self.api.post(DEFINITIONS, self.body, fieldValidation="Strict").ok(201)
        self.api.eventually(lambda: self.api.get(self.at()))
        return made

    def at(self, name: str = "", below: str = "", *, version: str = "v1") -> str:
        return self.api.at(self.plural, name, below, group=f"/apis/{self.group}/{version}")

    def widget(self, name: str = "w", *, version: str = "v1", **spec: Any) -> Json:
        return {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": {"size": 3, **spec},
        }


def test_a_definition_is_accepted_and_served(api: Api) -> None:
    defined = Defined(api)
    made = defined.create()
    names = made["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("widget", "WidgetList")
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["metadata"]["generation"] == 1
    now = api.get(f"{DEFINITIONS}/{defined.name}").ok()["status"]
    states = {each["type"]: (each["status"], each["reason"]) for each in now["conditions"]}
    assert states["NamesAccepted"] == ("True", "NoConflicts")
    assert states["Established"] == ("True", "InitialNamesAccepted")
    assert now["storedVersions"] == ["v1"]
    assert now["acceptedNames"]["kind"] == "Widget"
    offered = api.eventually(lambda: api.get(f"/apis/{defined.group}/v1")).ok()["resources"]
    assert [(each["name"], each["kind"]) for each in offered] == [
        (defined.plural, "Widget"),
        (f"{defined.plural}/status", "Widget"),
    ]


def test_defaults_and_pruning(api: Api) -> None:
    defined = Defined(api)
    defined.create()
    sent = defined.widget(any={"deep": {"er": 1}}, extra=True)
    made = api.post(defined.at(), sent, fieldValidation="Ignore").ok(201)
    assert made["spec"] == {"size": 3, "color": "red", "any": {"deep": {"er": 1}}}


REFUSED: tuple[tuple[Json, str], ...] = (
    ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ({"size": 10}, "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"),
    (
        {"size": "3"},
        'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
    ),
    ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
    ({"label": "ABC"}, "spec.label: Invalid value: \"ABC\": spec.label in body should match '^[a-z]+$'"),
    ({"label": "abcdef"}, "spec.label: Too long: may not be more than 5 bytes"),
    (
        {"when": "noon"},
        'spec.when: Invalid value: "noon": spec.when in body must be of type date-time: "noon"',
    ),
    ({"parts": [{}, {}, {}]}, "spec.parts: Too many: 3: must have at most 2 items"),
    (
        {"parts": [{"a": "b"}]},
        'spec.parts[0].a: Invalid value: "string": spec.parts[0].a in body must be of type boolean: "string"',
    ),
    (
        {"parts": {}},
        'spec.parts: Invalid value: "object": spec.parts in body must be of type array: "object"',
    ),
)


def test_a_schema_refuses(api: Api) -> None:
    defined = Defined(api)
    defined.create()
    for spec, problem in REFUSED:
        api.post(defined.at(), defined.widget(**spec)).no(
            422, "Invalid", f'Widget.{defined.group} "w" is invalid: {problem}'
        )
    assert api.post(defined.at(), defined.widget(port="http")).ok(201)["spec"]["port"] == "http"


def test_what_is_required(api: Api) -> None:
    defined = Defined(api)
    defined.create()
    body = defined.widget()
    body["spec"] = {}
    api.post(defined.at(), body).no(
        422, "Invalid", f'Widget.{defined.group} "w" is invalid: spec.size: Required value'
    )
    del body["spec"]
    api.post(defined.at(), body).no(
        422, "Invalid", f'Widget.{defined.group} "w" is invalid: spec: Required value'
    )


def test_two_versions_of_one_kind(api: Api) -> None:
    defined = Defined(api)
    [first] = defined.body["spec"]["versions"]
    defined.body["spec"]["versions"].append({**first, "name": "v1beta1", "storage": False})
    defined.create()
    api.post(defined.at(), defined.widget()).ok(201)
    api.eventually(lambda: api.get(defined.at(version="v1beta1")))
    other = api.get(defined.at("w", version="v1beta1")).ok()
    assert other["apiVersion"] == f"{defined.group}/v1beta1"
    assert other["spec"]["size"] == 3
    assert api.get(defined.at(version="v2")).code == 404


def test_columns(api: Api) -> None:
    defined = Defined(api)
    defined.body["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Part", "type": "boolean", "jsonPath": ".spec.parts[1].a"},
        {"name": "Parts", "type": "string", "jsonPath": ".spec.parts"},
    ]
    defined.create()
    parts = [{"a": False}, {"a": True}]
    api.post(defined.at(), defined.widget(parts=parts, when="2001-01-01T00:00:00Z")).ok(201)
    api.post(defined.at(), defined.widget("bare")).ok(201)
    table = api.get(defined.at(), accept=f"{TABLE},{JSON}").ok()
    assert [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Color", "string", 1),
        ("When", "date", 0),
        ("Part", "boolean", 0),
        ("Parts", "string", 0),
    ]
    bare, full = (row["cells"] for row in table["rows"])
    assert bare == ["bare", 3, "red", None, None, None]
    assert full[:3] == ["w", 3, "red"]
    assert full[3].endswith("y")
    assert full[4:] == [True, '[{"a":false},{"a":true}]']


def test_a_definition_that_is_wrong(api: Api) -> None:
    defined = Defined(api)
    defined.body["metadata"]["name"] = "other"
    answer = api.post(DEFINITIONS, defined.body)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert (
        'metadata.name: Invalid value: "other": must be spec.names.plural+"."+spec.group'
        in answer.body["message"]
    )
    defined = Defined(api)
    defined.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": {}},
    }
    answer = api.post(DEFINITIONS, defined.body)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert (
        "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields"
        in answer.body["message"]
    )
    defined = Defined(api)
    del defined.body["spec"]["versions"][0]["schema"]
    answer = api.post(DEFINITIONS, defined.body)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "spec.versions[0].schema.openAPIV3Schema: Required value" in answer.body["message"]


def test_a_schema_is_changed(api: Api) -> None:
    defined = Defined(api)
    defined.create()
    patch = [
        {
            "op": "replace",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
            "value": 50,
        }
    ]
    api.patch(f"{DEFINITIONS}/{defined.name}", patch, "application/json-patch+json").ok()
    api.eventually(lambda: api.post(defined.at(), defined.widget(size=40), dryRun="All"), 201)


def test_a_definition_takes_its_objects_along(api: Api) -> None:
    defined = Defined(api)
    defined.create()
    api.post(defined.at(), defined.widget()).ok(201)
    api.delete(f"{DEFINITIONS}/{defined.name}").ok()
    api.eventually(lambda: api.get(f"{DEFINITIONS}/{defined.name}"), 404)
    api.eventually(lambda: api.get(defined.at()), 404)
    api.eventually(lambda: api.get(f"/apis/{defined.group}/v1"), 404)
