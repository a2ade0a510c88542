"""Selectors of devices, as users write them: what they answer, what they read, and how they fail."""

from __future__ import annotations

import msgspec
import pytest

from gangsched.model.cel.scope import ATTRIBUTES, CAPACITY, DRIVER, SHAREABLE, Reads
from gangsched.model.cel.selector import DeviceSelector, SelectableDevice, compile
from gangsched.model.cel.values import ABSENT, DeviceMap, SelectorError
from gangsched.model.resource_claims.objects import Attribute
from tests.model.cel.expressions import Expressions
from tests.model.cel.questions import view

NVIDIA = "gpu.nvidia.com"


def gpu(*, shareable: bool = False, **attributes: object) -> SelectableDevice:
    """A GPU of NVIDIA's driver, with other attributes where given."""
    usual = {"type": "gpu", "productName": "NVIDIA H200", "index": 3, "healthy": True, **attributes}
    kinds = {str: "string", int: "int", bool: "bool"}
    written = {name: {kinds[type(value)]: value} for name, value in usual.items()}
    written["driverVersion"] = {"version": "550.54.15"}
    written["topology.example.com/rack"] = {"string": "r1"}
    return SelectableDevice(
        NVIDIA,
        {name: msgspec.convert(one, Attribute) for name, one in written.items()},
        {"memory": "141Gi"},
        shareable=shareable,
    )


def failure(expression: str, device: SelectableDevice | None = None) -> str:
    """What is said of an expression that does not compile, or fails."""
    with pytest.raises(SelectorError) as caught:
        compile(expression).matches(device or gpu())
    return str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.nvidia.com'",
        "device.attributes['gpu.nvidia.com'].type == 'gpu'",
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('h[0-9]+$')",
        "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('535.0.0'))",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0",
        "device.attributes['topology.example.com'].rack in ['r1', 'r2']",
        "device.attributes['gpu.nvidia.com'].?mig.orValue(false) == false",
        "cel.bind(gpu, device.attributes['gpu.nvidia.com'], gpu.healthy && gpu.index < 4)",
        "!('mig' in device.attributes['gpu.nvidia.com']) && !has(device.attributes['no.example.com'].x)",
        "device.attributes['gpu.nvidia.com'].exists(name, value, name == 'index' && value == 3)",
    ],
)
def test_a_device_that_fits_is_selected(expression: str) -> None:
    assert compile(expression).matches(gpu())


def test_a_device_that_does_not_fit_is_not_selected() -> None:
    selector = compile("device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H200'")
    assert not selector.matches(gpu(productName="NVIDIA A100"))


def test_a_name_without_a_domain_is_in_the_driver_s_domain() -> None:
    device = SelectableDevice(
        "a.example.com", {"x": Attribute(int_value=1), "b.example.com/x": Attribute(int_value=2)}, {}
    )
    assert compile("device.attributes['a.example.com'].x == 1").matches(device)
    assert compile("device.attributes['b.example.com'].x == 2").matches(device)


def test_a_device_is_shareable_only_where_it_says_so() -> None:
    selector = compile("device.allowMultipleAllocations")
    assert selector.matches(gpu(shareable=True))
    assert not selector.matches(gpu())


def test_an_unknown_domain_is_empty_and_an_unknown_name_an_error() -> None:
    assert compile("device.attributes['no.example.com'].size() == 0").matches(gpu())
    assert failure("device.attributes['no.example.com'].x == 1").startswith("no such key: x")


def test_a_failure_is_told_with_its_place() -> None:
    assert failure("true &&\n  device.attributes['gpu.nvidia.com'].modle == 'x'") == (
        "no such key: modle (line 2, column 39: \"modle == 'x'\")"
    )
    assert failure("device.driver == 'a' &&").endswith("the expression ends too early (line 1, at its end)")
    assert failure("device.driver.startsWith(1)") == (
        "startsWith does not take (string, int) (line 1, column 15: 'startsWith(1)')"
    )
    assert failure("nothing == 1").startswith("there is no nothing (line 1, column 1")
    assert failure("1 + 'a' == 2").startswith("+ does not take (int, string) (line 1, column 3")
    assert failure("1").startswith("the expression is an int, neither true nor false")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("google.protobuf.Int64Value{value: 1} == 1", "messages of protobuf are not evaluated"),
        ("timestamp(0).getHours('Europe/Paris') == 1", "the time zone 'Europe/Paris' is not evaluated here"),
        ("'a'.matches('(')", "'(' is not a regular expression"),
        ("[1].exists(1, true)", "a macro takes a simple name"),
        ("has(device)", "has() takes the member of something"),
        ("nope(1)", "there is no function nope"),
        (
            "device.attributes['gpu.nvidia.com'].driverVersion in ['1.0.0']",
            "a kubernetes.Semver cannot be looked up",
        ),
        ("'" + "a" * 10240 + "'", "the expression has 10242 bytes, at most 10240"),
    ],
)
def test_what_is_not_evaluated_is_said_by_name(expression: str, said: str) -> None:
    assert said in failure(expression)


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ({"ints": [1]}, "attribute x is a list, which is alpha in Kubernetes 1.37"),
        ({"versions": ["1.0.0"]}, "attribute x is a list, which is alpha in Kubernetes 1.37"),
        ({"version": "1.0"}, "attribute x: '1.0' is not a semantic version"),
        ({}, "attribute x has no value of a known type"),
    ],
)
def test_an_attribute_that_cannot_be_read_is_an_error_of_the_device(
    attribute: dict[str, object], said: str
) -> None:
    with pytest.raises(SelectorError) as caught:
        SelectableDevice("d", {"x": msgspec.convert(attribute, Attribute)}, {})
    assert str(caught.value).startswith(said)


def test_a_capacity_that_cannot_be_read_is_an_error_of_the_device() -> None:
    with pytest.raises(SelectorError, match="capacity memory: 'much' is not a quantity"):
        SelectableDevice("d", {}, {"memory": "much"})


NOTHING: frozenset[tuple[str, str]] = frozenset()


def names(*found: tuple[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(found)


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("true", Reads()),
        ("device.driver == 'a'", Reads(driver=True)),
        ("device.allowMultipleAllocations", Reads(shareable=True)),
        ("device.attributes['d'].x == 1 || device.attributes.d['y']", Reads(names(("d", "x"), ("d", "y")))),
        ("device.attributes['d'].?x.hasValue()", Reads(names(("d", "x")))),
        ("device.attributes[?'d'].?x.hasValue()", Reads(names(("d", "x")))),
        ("has(device.attributes['d'].x)", Reads(names(("d", "x")))),
        ("'x' in device.attributes['d']", Reads(names(("d", "x")))),
        ("device.capacity['d'].m.isInteger()", Reads(NOTHING, names(("d", "m")))),
        (
            "cel.bind(all, device.attributes, cel.bind(d, all['d'], d.x && d.y))",
            Reads(names(("d", "x"), ("d", "y"))),
        ),
        ("cel.bind(x, device.attributes['d'].x, x == 1)", Reads(names(("d", "x")))),
        ("device.attributes['d'].x.y == 1", Reads(names(("d", "x")))),
        # What goes through maps, or reads names that it makes, may read all of them.
        ("device.attributes['d'].exists(name, name == 'x')", Reads(None)),
        ("'d' in device.attributes", Reads(None)),
        ("device.attributes[device.driver].x == 1", Reads(None, driver=True)),
        ("device.attributes['d'][device.driver] == 1", Reads(None, driver=True)),
        ("cel.bind(d, device.capacity['d'], d.size() == 0)", Reads(NOTHING, None)),
        ("dyn(device).size() == 4", Reads(None, None, driver=True, shareable=True)),
        ("[1].exists(device, device == 1)", Reads()),
    ],
)
def test_what_an_expression_reads_is_known(expression: str, reads: Reads) -> None:
    assert compile(expression).reads == reads


def outcome(selector: DeviceSelector, device: SelectableDevice) -> bool | None:
    """The answer, None if it fails."""
    try:
        return selector.matches(device)
    except SelectorError:
        return None


def test_what_is_not_read_changes_no_answer() -> None:
    """Two devices by chance are made equal in what an expression reads, and in nothing else."""
    source, n_known = Expressions(5), 0
    for _ in range(1500):
        selector = compile(source.expression())
        one, other = view(source.device()), view(source.device())
        reads = selector.reads
        if reads.attributes is None or reads.capacities is None:
            continue
        n_known += 1
        for kind, read in ((ATTRIBUTES, reads.attributes), (CAPACITY, reads.capacities)):
            for domain, name in read:
                held = other.variables[kind].setdefault(domain, DeviceMap({}, ABSENT))
                held.pop(name, None)
                if name in one.variables[kind].get(domain, {}):
                    held[name] = one.variables[kind][domain][name]
        for kind, is_read in ((DRIVER, reads.driver), (SHAREABLE, reads.shareable)):
            if is_read:
                other.variables[kind] = one.variables[kind]
        assert outcome(selector, one) is outcome(selector, other), selector.expression
    assert n_known > 500
