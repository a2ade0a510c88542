"""Koordinator: annotations on the pods. Its PodGroups come from coscheduling and are read the same way.

Sources: koordinator `apis/extension/coscheduling.go`, `pkg/scheduler/plugins/coscheduling/core/gang.go`.

Its total-number does not affect the start, there or here: a gang starts with min-available members. Its modes
differ in what happens to reserved members while the rest do not fit. Here nothing is reserved for a gang that
does not fit, so both modes are satisfied.
"""

from __future__ import annotations

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, GroupKey, Metadata, Numbers
from gangsched.model.dialects.numbers import count, parse_duration_s, start_together
from gangsched.model.stated.topology import TOPOLOGY_KEY, annotated_topology

_PREFIX = "gang.scheduling.koordinator.sh/"
NAME = _PREFIX + "name"
MIN = _PREFIX + "min-available"
TOTAL = _PREFIX + "total-number"
WAIT = _PREFIX + "waiting-time"
MODE = _PREFIX + "mode"
GROUPS = _PREFIX + "groups"
MATCH_POLICY = _PREFIX + "match-policy"
OLD_MATCH_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"
NETWORK_TOPOLOGY = _PREFIX + "network-topology-spec"
_KNOWN = frozenset((NAME, MIN, TOTAL, WAIT, MODE, GROUPS, MATCH_POLICY, NETWORK_TOPOLOGY))
_WITHOUT_EFFECT = frozenset((_PREFIX + "network-topology-index", _PREFIX + "timeout"))
"""An index counts only with a topology; the timeout is a mark that Koordinator's own scheduler writes."""
_MODES = ("", "Strict", "NonStrict")
_MAX_NAMED = 3
_ONCE = "once-satisfied"
_OTHER_POLICIES = ("only-waiting", "waiting-and-running")


def habits(key: GroupKey, annotations: Metadata) -> Numbers:
    """Reads its annotations on a pod or on a PodGroup. Raises: ParseError, naming the key."""
    numbers: Numbers = {}
    mode = annotations.get(MODE, "")
    if mode not in _MODES:
        raise ParseError(f"{mode[:80]!r} is neither Strict nor NonStrict", field=MODE)
    if annotations.get(GROUPS):
        numbers["start_together"] = start_together(annotations[GROUPS], key, GROUPS)
    unsupported = [
        f"{key[:80]}: this version of gangsched does not know the annotation; remove it, or use a version "
        "that knows it"
        for key in annotations
        if key.startswith(_PREFIX) and key not in _KNOWN and key not in _WITHOUT_EFFECT
    ]
    if spec := annotations.get(NETWORK_TOPOLOGY):
        is_needed = "MustGather" in spec
        word = "required" if is_needed else "preferred"
        why = (
            f"{NETWORK_TOPOLOGY}: Koordinator's topology is not read; write the annotation "
            f"{TOPOLOGY_KEY}, as in '{word}: topology.example.com/rack'"
        )
        if is_needed and not any(level.required for level in annotated_topology(annotations)):
            unsupported.append(why)
        elif not is_needed and TOPOLOGY_KEY not in annotations:
            numbers["wishes"] = (why,)
    field = MATCH_POLICY if annotations.get(MATCH_POLICY) else OLD_MATCH_POLICY
    policy = annotations.get(field) or _ONCE
    if policy in _OTHER_POLICIES:
        unsupported.append(
            f"{field}: {policy}: once a gang has been whole, its members are replaced one by one; write "
            f"{_ONCE}"
        )
    elif policy != _ONCE:
        raise ParseError(f"{policy[:80]!r} is not one of {', '.join((_ONCE, *_OTHER_POLICIES))}", field=field)
    if unsupported:
        numbers["unsupported"] = tuple(unsupported[:_MAX_NAMED])
    return numbers


def _from_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    if MIN not in annotations:
        raise ParseError(f"missing; {NAME} alone does not say how many pods start together", field=MIN)
    min_count = count(annotations[MIN], MIN)
    total = count(annotations.get(TOTAL) or 0, TOTAL, at_least=0)
    if 0 < total < min_count:
        raise ParseError(f"{total} is less than {MIN}, {min_count}", field=TOTAL)
    numbers: Numbers = {"min_count": min_count}
    if annotations.get(WAIT, "0").strip("0s"):
        numbers["schedule_timeout_s"] = parse_duration_s(annotations[WAIT], WAIT)
    return numbers | habits(key, annotations)


DIALECT = Dialect(
    name="koordinator",
    annotations=(NAME,),
    stated_annotations=(MIN, TOTAL, WAIT, MODE, GROUPS, MATCH_POLICY, OLD_MATCH_POLICY, NETWORK_TOPOLOGY),
    from_pod=_from_pod,
)
