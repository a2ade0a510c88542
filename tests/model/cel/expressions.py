"""Random expressions and devices, to compare evaluators; nearly all pass the API server's type checker.

An expression grows from forms: texts with holes for parts of a type. `<int>` is filled with an int, and
`<bool x:int>` with a bool that may use a variable x, an int. What is read of a device may have any type.
Nothing depends on the order of a map's keys, which cel-go has none of.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

DOMAINS = ("dra.example.com", "other.example.com")
TYPES = ("bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp", "quantity", "semver")
_HOLE = re.compile(r"<([a-z_]+)((?: [a-z]+:[a-z_]+)*)>")

_LITERALS: Mapping[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int": ("0", "1", "2", "3", "-1", "7", "80", "-5", "0x10", "9223372036854775807", "-9223372036854775808"),
    "small": ("0", "1", "-1", "500", "2147483648"),
    "uint": ("0u", "1u", "2u", "7u", "18446744073709551615u"),
    "double": ("0.0", "1.0", "2.5", "-0.5", "1e3", "1e300", "0.1", "-3.75", "123456.75", "1e-7"),
    "string": (
        '""', '"a"', '"b"', '"ab"', '"abcab"', '"H100"', '"A100-SXM"', '"é€"', "'x,y,,z'", '" a "', '"10"',
        '"-3"', '"1.5"', '"true"', '"1.2.3"', '"2.0.0-rc.1"', '"10Gi"', '"500m"', '"1e3"',
        '"2024-02-29T12:30:00Z"', '"1h30m"', '"10.1.2.3"', '"fd00::1"', '"10.0.0.0/8"',
        '"https://h.example:8443/a/b?q=1#f"', 'r"[a-c]+"', '"a*"', '"^H"', '"%s-%d"', '"services"', '"numa"',
    ),
    "bytes": ('b""', 'b"a"', 'b"\\xff\\x00"', 'b"é"'),
    "duration": (
        'duration("0s")', 'duration("1h30m")', 'duration("-1.5s")', 'duration("90m")', 'duration("1ns")',
    ),
    "timestamp": (
        "timestamp(0)", 'timestamp("2024-02-29T12:30:00.5Z")', 'timestamp("2023-12-31T23:59:59+02:30")',
        'timestamp("0001-01-01T00:00:00Z")', "timestamp(1700000000)",
    ),
    "usual_time": (
        'timestamp("2024-02-29T22:30:00.5Z")', "timestamp(0)", 'timestamp("2023-12-31T23:59:59+02:30")',
    ),
    "quantity": (
        'quantity("0")', 'quantity("1Gi")', 'quantity("1024Mi")', 'quantity("500m")', 'quantity("1.5")',
        'quantity("-3k")', 'quantity("80Gi")', 'quantity("9Ei")', 'quantity("0.1n")',
        'quantity("12345678901234567890")', 'quantity("1e3")',
    ),
    "semver": (
        'semver("1.0.0")', 'semver("1.2.3")', 'semver("1.2.3-alpha.1")', 'semver("1.2.3-alpha.beta")',
        'semver("v1.2", true)', 'semver("01.2.3+b", true)', 'semver("550.54.15")',
    ),
    "ip": (
        'ip("10.1.2.3")', 'ip("fd00::1")', 'ip("::1")', 'ip("169.254.1.1")', 'ip("224.0.0.5")',
        'ip("0.0.0.0")',
    ),
    "cidr": ('cidr("10.0.0.0/8")', 'cidr("fd00::/64")', 'cidr("10.1.2.3/32")', 'cidr("0.0.0.0/0")'),
    "url": (
        'url("https://h.example:8443/a/b?q=1&q=2#f")', 'url("/a%20b/c?x")', 'url("http://u:p@[fd00::1]:80/")',
        'url("mailto:a@b")', 'url("https://h.example")',
    ),
    "optint": ("optional.none()", "optional.of(1)", "optional.of(7)"),
    "optstring": ("optional.none()", 'optional.of("a")', 'optional.of("")'),
    "list_int": ("[]", "[1]", "[1, 2, 3]", "[3, 1, 2, 1]", "[7, -1]", "[0, 9223372036854775807]"),
    "list_string": ("[]", '["a"]', '["b", "a", "ab"]', '["a", "b", "a"]', '["x", ""]'),
    "list_double": ("[]", "[1.5]", "[2.5, 0.5]"),
    "map_int": ("{}", '{"a": 1}', '{"a": 1, "b": 2}', '{"": 7, "numa": 3}'),
    "map_by_int": ("{}", "{1: 1}", "{0: 5, 2: 7}"),
    "type": (
        "int", "string", "bool", "double", "list", "map", "null_type", "type", "uint", "bytes",
        "optional_type",
    ),
}  # fmt: skip

_FORMS: Mapping[str, tuple[str, ...]] = {
    "bool": (
        "<bool> && <bool>", "<bool> || <bool>", "!<bool>", "<bool> && <bool> && <bool>",
        "<bool> || <bool> && <bool>", "<bool> ? <bool> : <bool>", "<int> == <int>", "<string> == <string>",
        "<string> != <string>", "<int> != <int>", "<int> < <int>", "<int> >= <int>", "<uint> <= <uint>",
        "<double> > <double>", "<double> == <double>", "<string> < <string>", "<bytes> == <bytes>",
        "<bytes> < <bytes>", "<duration> < <duration>", "<duration> == <duration>",
        "<timestamp> < <timestamp>", "<timestamp> == <timestamp>", "<bool> == <bool>",
        "<int> < dyn(<double>)", "dyn(<uint>) == <int>", "dyn(<int>) == dyn(<double>)",
        "dyn(<any>) == dyn(<any>)", "dyn(<any>) != dyn(<any>)", "dyn(<any>) < dyn(<any>)",
        "[dyn(<any>)] == [dyn(<any>)]", "null == dyn(<any>)", "<string>.startsWith(<string>)",
        "<string>.endsWith(<string>)", "<string>.contains(<string>)", "<string>.matches(<pattern>)",
        "<string> in <list_string>", "<int> in <list_int>", "<string> in <map_int>", "<int> in <map_by_int>",
        "dyn(<any>) in <list_int>", "dyn(<any>) in <list_string>", "dyn(<any>) in <map_int>",
        "<int> in [<int>, <int>]", "<string> in [<string>, device.driver]", "type(<int>) == <type>",
        "type(dyn(<any>)) == <type>", "<list_int> == <list_int>", "<list_string> == <list_string>",
        "<map_int> == <map_int>", "<list_double> != <list_double>", "<quantity> == <quantity>",
        "<quantity>.isGreaterThan(<quantity>)", "<quantity>.isLessThan(<quantity>)", "<quantity>.isInteger()",
        "<semver> == <semver>", "<semver>.isGreaterThan(<semver>)", "<semver>.isLessThan(<semver>)",
        "isQuantity(<string>)", "isSemver(<string>)", "isSemver(<string>, <bool>)", "isIP(<string>)",
        "isCIDR(<string>)", "isURL(<string>)", "ip.isCanonical(<string>)", "<ip>.isLoopback()",
        "<ip>.isGlobalUnicast()", "<ip>.isLinkLocalUnicast()", "<ip>.isLinkLocalMulticast()",
        "<ip>.isUnspecified()", "<ip> == <ip>", "<cidr>.containsIP(<ip>)", "<cidr>.containsIP(<string>)",
        "<cidr>.containsCIDR(<cidr>)", "<cidr> == <cidr>", "<url> == <url>", "<optint>.hasValue()",
        "<optstring> == <optstring>", "<optint> == <optint>", "has(device.attributes[<domain>].<name>)",
        "has(<map_int>.a)", "<domain> in device.attributes", "<string> in device.attributes[<domain>]",
        "<string> in device.capacity[<domain>]",
        "device.attributes[<domain>].exists(x, x == <string x:string>)",
        "device.attributes.all(x, device.attributes[x].size() > <int>)",
        "device.capacity.exists_one(x, x == <string x:string>)", "device.allowMultipleAllocations",
        "device.attributes[<domain>].exists(x, y, y == dyn(<any x:string>))",
        "<list_int>.all(x, <bool x:int>)", "<list_int>.exists(x, <bool x:int>)",
        "<list_int>.exists_one(x, <bool x:int>)", "<list_string>.exists(y, <bool y:string>)",
        "<list_string>.all(y, <bool y:string>)", "<list_int>.all(x, y, <bool x:int y:int>)",
        "<map_int>.exists(x, y, <bool x:string y:int>)", "<map_int>.all(x, <bool x:string>)",
        "<list_string>.existsOne(x, y, <bool x:int y:string>)",
        "<map_int>.exists_one(x, y, <bool x:string y:int>)", "dyn(<any>).exists(x, <bool>)",
        "cel.bind(x, <int>, <bool x:int>)", "cel.bind(y, <string>, <bool y:string>)",
        "cel.bind(x, device.attributes[<domain>], has(x.<name>) && x.<name> == dyn(<any>))",
        "<list_int>.isSorted()", "<list_string>.isSorted()", "sets.contains(<list_int>, <list_int>)",
        "sets.intersects(<list_string>, <list_string>)", "sets.equivalent(<list_int>, <list_int>)",
        "<list_int>.includes(<int>)", "dyn(<any>).includes(<int>)", "bool(<string>)",
        "format.<format>().validate(<string>).hasValue()", "format.named(<string>).hasValue()",
    ),
    "int": (
        "<int> + <int>", "<int> - <int>", "<int> * <int>", "<int> / <int>", "<int> % <int>", "-<int>",
        "(<int>)", "<bool> ? <int> : <int>", "size(<string>)", "<string>.size()", "<list_int>.size()",
        "<map_int>.size()", "<bytes>.size()", "int(<string>)", "int(<double>)", "int(<uint>)",
        "int(<duration>)", "int(<timestamp>)", "<list_int>[<int>]", "<map_int>[<string>]",
        "<map_by_int>[<int>]", "<map_int>.a", "<list_int>[dyn(<double>)]", "<optint>.orValue(<int>)",
        "<optint>.value()", "<list_int>.sum()", "<list_int>.max()", "<list_int>.min()",
        "<list_int>.indexOf(<int>)", "<list_string>.lastIndexOf(<string>)", "<string>.indexOf(<string>)",
        "<string>.indexOf(<string>, <int>)", "<string>.lastIndexOf(<string>)",
        "<string>.lastIndexOf(<string>, <int>)", "<quantity>.asInteger()", "sign(<quantity>)",
        "<quantity>.compareTo(<quantity>)", "<semver>.major()", "<semver>.minor()", "<semver>.patch()",
        "<semver>.compareTo(<semver>)", "<ip>.family()", "<cidr>.prefixLength()", "<timestamp>.getFullYear()",
        "<timestamp>.getMonth()", "<timestamp>.getDayOfYear()", "<timestamp>.getDayOfWeek()",
        "<usual_time>.getHours(<zone>)", "<usual_time>.getDate(<zone>)", "<timestamp>.getMilliseconds()",
        "<duration>.getHours()", "<duration>.getMinutes()", "<duration>.getSeconds()",
        "<duration>.getMilliseconds()", "cel.bind(x, <int>, <int x:int>)",
        "device.attributes[<domain>].<name>", "device.attributes[<domain>][<string>]",
        "device.attributes[<domain>].size()", "<string>.findAll(<pattern>).size()",
        "<list_int>.filter(x, <bool x:int>).size()",
    ),
    "uint": (
        "<uint> + <uint>", "<uint> - <uint>", "<uint> * <uint>", "<uint> / <uint>", "<uint> % <uint>",
        "uint(<int>)", "uint(<string>)", "uint(<double>)",
    ),
    "double": (
        "<double> + <double>", "<double> - <double>", "<double> * <double>", "<double> / <double>",
        "-<double>", "double(<int>)", "double(<string>)", "double(<uint>)", "<quantity>.asApproximateFloat()",
        "<list_double>.sum()", "<list_double>.max()",
    ),
    "string": (
        "<string> + <string>", "string(<int>)", "string(<double>)", "string(<bool>)", "string(<uint>)",
        "string(<bytes>)", "string(<duration>)", "string(<timestamp>)", "string(<ip>)", "string(<cidr>)",
        "<string>.lowerAscii()", "<string>.upperAscii()", "<string>.trim()", "<string>.charAt(<int>)",
        "<string>.substring(<int>)", "<string>.substring(<int>, <int>)",
        "<string>.replace(<string>, <string>)", "<string>.replace(<string>, <string>, <int>)",
        "<list_string>.join()", "<list_string>.join(<string>)", "<string>.find(<pattern>)",
        "strings.quote(<string>)", '"%s|%s".format([<any>, <any>])',
        '"%d-%x-%o-%b".format([<int>, <int>, <uint>, <int>])', '"%.2f %e".format([<double>, <double>])',
        '"%s".format([<list_string>])', '"%s".format([<map_int>])', '"%x%X".format([<string>, <bytes>])',
        "<list_string>[<int>]", "<bool> ? <string> : <string>", "<optstring>.orValue(<string>)",
        "device.driver", "device.attributes[<domain>].<name>", "<url>.getHost()", "<url>.getHostname()",
        "<url>.getPort()", "<url>.getScheme()", "<url>.getEscapedPath()",
        "device.attributes[<domain>].?<name>.orValue(<string>)", "<list_string>.first().orValue(<string>)",
    ),
    "bytes": ("bytes(<string>)", "<bytes> + <bytes>"),
    "duration": (
        "<duration> + <duration>", "<duration> - <duration>", "<timestamp> - <timestamp>",
        "duration(<string>)",
    ),
    "timestamp": (
        "<timestamp> + <duration>", "<duration> + <timestamp>", "<timestamp> - <duration>",
        "timestamp(<string>)", "timestamp(<int>)",
    ),
    "quantity": (
        "<quantity>.add(<quantity>)", "<quantity>.sub(<quantity>)", "<quantity>.add(<int>)",
        "<quantity>.sub(<small>)", "quantity(<string>)", "device.capacity[<domain>].<name>",
        "device.capacity[<domain>].?<name>.orValue(<quantity>)", "<bool> ? <quantity> : <quantity>",
    ),
    "semver": ("semver(<string>)", "semver(<string>, <bool>)", "device.attributes[<domain>].<name>"),
    "ip": ("ip(<string>)", "<cidr>.ip()"),
    "cidr": ("cidr(<string>)", "<cidr>.masked()"),
    "url": ("url(<string>)",),
    "optint": (
        "optional.of(<int>)", "optional.ofNonZeroValue(<int>)", "<list_int>[?<int>]", "<map_int>[?<string>]",
        "<map_int>.?a", "<optint>.or(<optint>)", "<optint>.optMap(x, <int x:int>)",
        "<optint>.optFlatMap(x, <optint x:int>)", "<list_int>.first()", "<list_int>.last()",
        "device.attributes[<domain>].?<name>", "device.attributes[?<domain>].<name>",
    ),
    "optstring": (
        "optional.of(<string>)", "<list_string>[?<int>]", "optional.ofNonZeroValue(<string>)",
        "<list_string>.last()",
    ),
    "list_int": (
        "<list_int> + <list_int>", "[<int>, <int>]", "[<int>, ?<optint>]", "<list_int>.map(x, <int x:int>)",
        "<list_int>.filter(x, <bool x:int>)", "<list_int>.map(x, <bool x:int>, <int x:int>)",
        "<list_int>.sort()", "<list_int>.reverse()", "<list_int>.distinct()",
        "<list_int>.slice(<int>, <int>)", "lists.range(<int>)", "<list_int>.sortBy(x, <int x:int>)",
        "[<list_int>, <list_int>].flatten()", "<list_string>.map(y, <int y:string>)",
        "<list_int>.transformList(x, y, <int x:int y:int>)", "<bool> ? <list_int> : <list_int>",
        "[<optint>, <optint>].unwrapOpt()", "optional.unwrap([<optint>])",
    ),
    "list_string": (
        "<string>.split(<string>)", "<string>.split(<string>, <int>)", "<list_string> + <list_string>",
        "[<string>, <string>]", "<list_string>.filter(y, <bool y:string>)",
        "<list_int>.map(x, <string x:int>)", "<string>.findAll(<pattern>)",
        "<string>.findAll(<pattern>, <int>)", "<list_string>.sort()", "<list_string>.distinct()",
        "<list_string>.sortBy(y, <int y:string>)",
    ),
    "list_double": ("[<double>, <double>]", "<list_double> + <list_double>", "<list_double>.sort()"),
    "map_int": (
        "{<string>: <int>}", "{<string>: <int>, <string>: <int>}", "{?<string>: <optint>}",
        "<map_int>.transformMap(x, y, <int x:string y:int>)",
        "<map_int>.transformMap(x, y, <bool x:string y:int>, <int y:int>)",
        "<list_string>.transformMapEntry(x, y, {y: x})", "<bool> ? <map_int> : <map_int>",
    ),
    "map_by_int": ("{<int>: <int>}", "<list_int>.transformMap(x, y, <int x:int y:int>)"),
    "pattern": ("<string>",),
    "type": ("type(<int>)", "type(dyn(<any>))"),
}  # fmt: skip

_WORDS: Mapping[str, tuple[str, ...]] = {
    "domain": tuple(f'"{domain}"' for domain in (*DOMAINS, "no.example.com")),
    "name": ("numa", "model", "healthy", "version", "memory", "cores", "missing"),
    "zone": ('"UTC"', '"+01:30"', '"-08:00"', '""'),
    "format": (
        "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "labelValue", "uri", "uuid",
        "byte", "date", "datetime", "dns1123LabelPrefix",
    ),
}  # fmt: skip
_PATTERNS = (
    '"a"',
    '"^H[0-9]+$"',
    '"(a|b)*"',
    '"[^a-c]"',
    '"[0-9]*"',
    'r"\\d+"',
    '"a{2}"',
    '"(?i)h1"',
    '""',
    '"."',
    '"("',
)


# Changed in one place, they often still parse.
_NEAR = (
    "12", "-7", "1e3", "0x1f", "1_000", "1.5e-7", "inf", "true", "10Gi", "1.5Ki", "500m", "12e-3", "100E",
    "+0.1n", "1.2.3", "v1.2", "1.2.3-rc.1+b.2", "01.2.3", "1h30m", "1.5s", "-3us", "100000h",
    "2024-02-29T12:30:00Z",
    "2024-12-31T23:59:59.123+02:30", "10.1.2.3", "fd00::1", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "10.0.0.0/8",
    "fd00::/64", "https://h.example:8443/a/b?q=1#f", "http://u:p@[fd00::1]:80/a%20b", "/a?b=c&d",
    "mailto:a@b", "a.b-c", "example.com/a_b", "2024-02-29", "123e4567-e89b-12d3-a456-426614174000",
    "YQ==", "[a-c]+",
)  # fmt: skip


class Expressions(random.Random):
    """Makes expressions and devices by chance; the same ones for the same seed."""

    def expression(self, depth: int | None = None) -> str:
        """Returns a bool, with forms within forms down to `depth`."""
        return self._part("bool", depth if depth is not None else self.choice((1, 2, 2, 3, 3, 4)), {})

    def device(self) -> dict[str, Any]:
        """Returns a device as a ResourceSlice has it, with its driver."""
        driver = self.choice(DOMAINS)
        attributes = {self._name(): self._attribute() for _ in range(self.randrange(6))}
        usual: dict[str, dict[str, Any]] = {
            "numa": {"int": self.choice((0, 1, 2, 3))},
            "model": {"string": self.choice(("H100", "A100-SXM", "a", ""))},
            "healthy": {"bool": self.random() < 0.7},
            "version": {"version": self.choice(("1.2.3", "550.54.15", "2.0.0-rc.1"))},
        }
        for name, value in usual.items():
            if self.random() < 0.8:
                attributes[self._qualified(name)] = value
        capacity = {
            self._name(): {"value": self.choice(("1", "80Gi", "500m", "1024Mi", "12e3", "0"))}
            for _ in range(self.randrange(4))
        }
        # A name written in both ways has either value, by chance.
        for named in (attributes, capacity):
            for name in [name for name in named if f"{driver}/{name}" in named]:
                del named[name]
        return {
            "driver": driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": self.choice((True, False, None)),
        }

    def _name(self) -> str:
        return self._qualified(self.choice(_WORDS["name"]))

    def _qualified(self, name: str) -> str:
        return self.choice((name, f"{self.choice(DOMAINS)}/{name}"))

    def _attribute(self) -> dict[str, Any]:
        return self.choice(
            (
                {"int": self.choice((0, 1, 7, -1, 2**63 - 1))},
                {"string": self.choice(("", "a", "H100", "1.2.3", "10Gi", "10.1.2.3", "é"))},
                {"bool": self.random() < 0.5},
                {"version": self.choice(("1.0.0", "1.2.3", "1.2.3-alpha.1"))},
            )
        )

    def text(self) -> str:
        """Returns a string that something may take for a number, a time, an address or a URL."""
        usual = self.choice(_NEAR)
        at = self.randrange(len(usual) + 1)
        changed = (
            usual[:at]
            + self.choice(("", *"0159.-+eEkKmMGinTZ:/[]%?#@ ab&=;,"))
            + usual[at + self.randrange(3) :]
        )
        return json.dumps(changed, ensure_ascii=False)

    def _part(self, kind: str, depth: int, variables: Mapping[str, str]) -> str:
        if kind in _WORDS:
            return self.choice(_WORDS[kind])
        if kind == "any":
            kind = self.choice(TYPES)
        if kind == "pattern" and self.random() < 0.8:
            return self.choice(_PATTERNS)
        usable = [name for name, of in variables.items() if of == kind]
        if usable and self.random() < 0.5:
            return self.choice(usable)
        if kind == "string" and self.random() < 0.1:
            return self.text()
        if kind not in _FORMS or (kind in _LITERALS and (depth <= 0 or self.random() < 0.15)):
            return self.choice(_LITERALS[kind])
        form = self.choice(_FORMS[kind])

        def fill(hole: re.Match[str]) -> str:
            bound = dict(pair.split(":") for pair in hole[2].split())
            part = self._part(hole[1], depth - 1, {**variables, **bound})
            # Without parentheses it is often another expression, as good as the one that was meant.
            return f"({part})" if " " in part and self.random() < 0.8 else part

        return _HOLE.sub(fill, form)
