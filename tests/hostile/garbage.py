"""Texts, quantities, times and selectors that are odd, drawn from one seed. Used by the files beside it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
STRANGER = "default-scheduler"

POD_ANNOTATIONS = (
    "gangsched.io/required-rbw", "gangsched.io/expected-rbw", "requiredRBW", "expectedRBW",
    "gangsched.io/rbw-direction", "gangsched.io/rbw-scope", "gangsched.io/min-members",
    "gangsched.io/total-members", "gangsched.io/schedule-timeout", "gangsched.io/groups",
    "gangsched.io/on-partial-bind", "gangsched.io/disruption-mode", "gangsched.io/on-device-failure",
    "gangsched.io/recover-within", "gangsched.io/if-not-recovered",
    "gangsched.io/device-constraints", "gangsched.io/allocated-devices", "gangsched.io/visible-devices",
    "gangsched.io/gang", "gangsched.io/rank", "gangsched.io/attempt", "gangsched.io/traceparent",
    "tracing.k8s.io/traceparent", "scheduling.k8s.io/group-name", "pod-group-name",
    "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/groups",
    "kueue.x-k8s.io/pod-group-total-count", "hami.io/vgpu-devices-to-allocate",
    "scheduling.koordinator.sh/device-allocated", "gpu.nvidia.com.visible-devices.gangsched.io/main",
)  # fmt: skip
NODE_ANNOTATIONS = (
    "gangsched.io/devices", "gangsched.io/device-report", "gangsched.io/remaining-bandwidth",
    "gangsched.io/load", "hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register",
)  # fmt: skip
GROUP_LABELS = (
    "gangsched.io/pod-group", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available",
    "kueue.x-k8s.io/pod-group-name", "kai.scheduler/subgroup-name",
)  # fmt: skip
QUANTITIES = (
    "0", "1", "7Ei", "8Ei", "9E", "99999999999E", "9223372036854775807", "9223372036854775808", "1e18",
    "1e999", "1n", "1u", "0.000000001", "-1", "-7Ei", "4611686018427387904", "1152921504606846976", "16Pi",
    "1m", "100",
)  # fmt: skip
# The API server multiplies these by a thousand to see whether they are whole, and some do not come back.
WHOLE_NUMBERS = ("0", "1", "2", "8", "1000", "1e15", "8Pi", "1e18", "99999999999E", "9E")
NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "100000",
    "100001",
    "999999999",
    "9" * 30,
    "1e9",
    "0x10",
    "٣",
    "1.5",
    " 1",
    "NaN",
    "",
)
TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "1969-12-31T23:59:59Z")


class Garbage:
    """Draws it from `rng`."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def text(self) -> str:
        """The value of an annotation."""
        rng = self.rng
        return rng.choice((self.garbage, self._number, self._deep, self._nearly, self._long))()

    def garbage(self) -> str:
        """Brackets, quotes, escapes and control characters."""
        rng = self.rng
        alphabet = 'ab{}[]":,\\/<>&;\x1b[31m\x07\n\r\t\u202e\u0000\ud83d\ude00'.replace(
            "\ud83d\ude00", "\U0001f600"
        )
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(80)))

    def _number(self) -> str:
        rng = self.rng
        return rng.choice(NUMBERS) + rng.choice(("", "", "MB/s", "s", "h", "Gi", "%"))

    def _deep(self) -> str:
        n = self.rng.choice((10, 63, 64, 65, 300, 990, 1_200, 5_000))
        head, tail = self.rng.choice(
            (('{"a":', "}"), ("[", "]"), ('{"nvidia.com/gpu":', "}"), ('[{"id":', "}]"))
        )
        return head * n + "{}" + tail * n

    def _long(self) -> str:
        return self.rng.choice(("x", "é", "[1,", '{"a":1},', "1")) * self.rng.choice(
            (64, 1_000, 9_000, 60_000)
        )

    def _nearly(self) -> str:
        """Of the right form, with values that are not."""
        rng = self.rng
        odd: Any = rng.choice(
            (None, True, -1, 10**18, 1e308, "", "x" * 200, [], {}, "\x00", [[]], {"a": None}, 2**63)
        )
        ids = [f"GPU-{rng.randrange(9)}" for _ in range(rng.randrange(12))]
        forms: tuple[Any, ...] = (
            {GPU: [{"id": one, "health": rng.choice(("Healthy", "", "ill")), "numa": odd} for one in ids]},
            {GPU: [{"id": one, "links": dict.fromkeys(ids, "NV999")} for one in ids]},
            {GPU: [{"id": f"G{i}"} for i in range(rng.choice((100, 4_096, 4_097)))]},
            {GPU: ids, "cpu": ids, "": ids},
            {"main": {GPU: ids}, "": {"": ids}},
            {"main": {GPU: odd}},
            {GPU: {"sameNUMA": odd, "linked": odd, "model": odd, "minMemory": rng.choice(QUANTITIES)}},
            {GPU: {"linked": "NV4", "model": ["H100"] * 40}},
            {"egressMBps": odd, "ingressMBps": 1, "totalMBps": 2, "observedAt": rng.choice(TIMES)},
            {"egressMBps": 1, "ingressMBps": 1, "totalMBps": 2, "observedAt": rng.choice(TIMES)},
            {
                "utilisation": {"cpu": odd, "memory": 0.5},
                "performance": {"cores": rng.choice((1e300, 0, -1, 64)), "MHz": odd, "memoryBytes": 1e30},
                "observedAt": rng.choice(TIMES),
            },
            {
                "resources": [GPU],
                "pods": [{"uid": "u", "namespace": "", "name": "", "containers": {"c": {GPU: ids}}}],
            },
            [f"default/{rng.choice('abcdefgh')}" for _ in range(rng.choice((1, 3, 64, 65, 2_000)))],
            ["", "/", "a/b/c", "default/"],
            {"preferAvoidPods": [{"podSignature": {"podController": odd}}]},
            odd,
        )
        return json.dumps(rng.choice(forms))

    def word(self) -> str:
        """What is allowed as a label's value."""
        return self.rng.choice(("a", "b", "c", "x" * 63, "0", "A.b_c-D", "1e9", "none", "", "-1"[1:]))

    def quantity(self, resource: str = "cpu") -> str:
        """Mostly one that an API server takes: not below nothing, and of what is counted whole numbers."""
        if self.rng.random() < 0.03:
            return self.rng.choice(QUANTITIES)
        if resource in ("cpu", "memory", "ephemeral-storage", "storage"):
            return self.rng.choice([one for one in QUANTITIES if not one.startswith("-")])
        return self.rng.choice(WHOLE_NUMBERS)

    def deep_fields(self, body: Json) -> None:
        """managedFields of thousands of levels, which an API server stores."""
        n = self.rng.choice((60, 900, 3_000, 9_000))
        tree: Json = {}
        for _ in range(n):
            tree = {"f:a": tree}
        body["metadata"]["managedFields"] = [
            {
                "manager": "hostile",
                "operation": "Update",
                "apiVersion": "v1",
                "time": TIMES[2],
                "fieldsType": "FieldsV1",
                "fieldsV1": tree,
            }
        ]

    def selector(self) -> Json:
        """A label selector."""
        rng = self.rng
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = [self.word() for _ in range(rng.choice((1, 2, 500)))] if "In" in operator else []
        return {
            "matchLabels": {f"key{rng.randrange(200)}": self.word() for _ in range(rng.randrange(3))},
            "matchExpressions": [
                {"key": f"key{rng.randrange(200)}", "operator": operator}
                | ({"values": values} if values else {})
            ],
        }
