"""The checks of what was read about the installation itself: pure, each a list of findings.

Lives here: versions, rights, policies, FlowSchemas, leases, clocks. Not here: nodes and pods
(doctor.cluster_checks), the requests (doctor.reading).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gangsched.config.election import LeaderElectionSettings
from gangsched.doctor.findings import Finding, Level, Work, found
from gangsched.doctor.reading import Deployment, Facts, Lease
from gangsched.doctor.rights import ROLE
from gangsched.model.text.printable import several

OLDEST, NEWEST = (1, 34), (1, 37)
"""Versions of Kubernetes that are tested (docs/operating.md)."""
MAX_SKEW_S = 2.0
_INSTALL = "kubectl apply -k deploy/"
_SCHEDULER_POLICIES = ("gangsched-reserved-keys", "gangsched-reserved-keys-binding")
_AGENT_POLICIES = ("gangsched-agent-own-node", "gangsched-node-devices")
AGENT_USER = "system:serviceaccount:gangsched-agent:gangsched-agent"
_FLOW_SCHEMAS = ("gangsched-leader-election", "gangsched", "gangsched-reviews")
_MAX_NAMED = 5
_ALONE = (
    "A single process is well so: --config FILE with its leaderElect: false says that it is meant. Two need"
    " leader election (--leader-elect), as deploy/ has it."
)


def check_version(facts: Facts) -> Iterator[Finding]:
    """Checks the API server's own version."""
    if facts.minor is None:
        cure = "See what answers in the API server's place, as a proxy would: kubectl get --raw /version"
        yield found("version", "unknown", facts.unread.get("minor", "not read"), cure)
    elif facts.minor < OLDEST:
        yield found(
            "version",
            "warning",
            f"the API server is {facts.version}; {_dotted(OLDEST)} is the oldest version that is tested",
            "Upgrade Kubernetes, or try what you use on a cluster of that version first.",
        )
    else:
        newer = f"; {_dotted(NEWEST)} is the newest that is tested" * (facts.minor > NEWEST)
        yield found("version", "ok", f"the API server is {facts.version}{newer}")


def check_rights(facts: Facts) -> Iterator[Finding]:
    """Checks that the scheduler's account has every verb that it needs."""
    if facts.refused is None:
        yield found(
            "rights",
            "unknown",
            f"what {facts.username} may do cannot be asked: {facts.unread.get('refused', 'not read')}",
            "Run this as a user who may create subjectaccessreviews.authorization.k8s.io.",
        )
        return
    missing: dict[str, list[str]] = {}
    for right in sorted(facts.refused):
        if right not in facts.optional:
            missing.setdefault(facts.rights.get(right, ROLE), []).append(str(right))
    for cure, rights in missing.items():
        yield found("rights", "problem", f"{facts.username} may not {_named(sorted(rights))}", cure)
    for right in sorted(facts.refused):
        if right in facts.optional:
            yield found(
                "rights",
                "warning",
                f"{facts.username} may not {right}, which needs {facts.optional[right]}",
                ROLE,
            )
    if not facts.refused:
        yield found("rights", "ok", f"{facts.username} may do all that it needs")


def check_policies(facts: Facts, work: Work, *, with_agents: bool) -> Iterator[Finding]:
    """Checks that the policies that reserve our keys are applied, bound to Deny, and name this account.

    Where nothing is installed and pods are bound all the same, as on a cluster to try things on, a missing
    policy is a warning.
    """
    tried_out = facts.deployments is not None and not _deployment(facts) and work.goes_on()
    if facts.policies is None or facts.policy_bindings is None:
        why = facts.unread.get("policies") or facts.unread.get("policy_bindings", "not read")
        kinds = "validatingadmissionpolicies and validatingadmissionpolicybindings"
        yield found("policies", "unknown", f"the policies cannot be read: {why}", _may_list(kinds))
        return
    policies = {policy.metadata.name: policy for policy in facts.policies}
    wanted = [(name, facts.username, "deploy/reserved-keys.yaml") for name in _SCHEDULER_POLICIES]
    wanted += [(name, AGENT_USER, "deploy/agent/policy.yaml") for name in _AGENT_POLICIES if with_agents]
    n_wrong = 0
    for name, user, file in wanted:
        policy = policies.get(name)
        bindings = [one for one in facts.policy_bindings if one.spec.policy_name == name]
        if policy is None:
            why = "is not applied: users may write what only gangsched may"
        elif not any("Deny" in (one.spec.validation_actions or ()) for one in bindings):
            why = "has no binding that denies, so it refuses no request"
        elif not any(user in one.expression for one in policy.spec.match_conditions or ()):
            why = f"does not name {user}, which is refused as any other user is"
        else:
            continue
        n_wrong += 1
        level: Level = "warning" if policy is None and tried_out else "problem"
        yield found("policies", level, f"the policy {name} {why}", f"kubectl apply -f {file}")
    if not n_wrong:
        yield found("policies", "ok", f"{several(len(wanted), 'policy', 'policies')} applied, and denying")


def check_flow_schemas(facts: Facts) -> Iterator[Finding]:
    """Checks the FlowSchemas by which the scheduler's requests wait when the API server has too many."""
    if facts.flow_schemas is None:
        why = facts.unread.get("flow_schemas", "not read")
        yield found("flowschemas", "unknown", why, _may_list("flowschemas"))
        return
    there = {one.metadata.name for one in facts.flow_schemas}
    missing = [name for name in _FLOW_SCHEMAS if name not in there]
    if missing:
        yield found(
            "flowschemas",
            "warning",
            f"{_named(missing)} not applied: under load the scheduler's requests, its lease too, wait with"
            " those of every service account",
            "kubectl apply -f deploy/flowschemas.yaml",
        )
    else:
        yield found("flowschemas", "ok", f"{len(_FLOW_SCHEMAS)} FlowSchemas are applied")


def check_replicas(facts: Facts, work: Work) -> Iterator[Finding]:
    """Checks the Deployment, if there is one: outside a cluster there is none."""
    if facts.deployments is None:
        why = facts.unread.get("deployments", "not read")
        yield found("replicas", "unknown", why, _may_list(f"deployments in {facts.account[0]}"))
        return
    namespace, name = facts.account
    one = _deployment(facts)
    if one is None:
        elsewhere = "no pod is bound by one that runs elsewhere"
        if work.goes_on():
            elsewhere = f"one that runs elsewhere does its work: {work.text(facts.now)}"
        text = f"there is no Deployment {name} in {namespace}; {elsewhere}"
        yield found("replicas", "warning", text, _INSTALL)
        return
    wanted, ready = 1 if one.spec.replicas is None else one.spec.replicas, one.status.ready_replicas
    if not ready:
        why = "it is scaled to 0" if not wanted else f"none of {wanted} replicas is ready"
        deed = f"describe deployment/{name}" if wanted else f"scale deployment/{name} --replicas=2"
        cure = f"kubectl -n {namespace} {deed}"
        yield found("replicas", "problem", f"no scheduler runs: {why}", cure)
    elif ready < wanted:
        cure = f"kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}"
        yield found("replicas", "warning", f"{ready} of {wanted} replicas are ready", cure)
    else:
        yield found("replicas", "ok", f"{ready} of {wanted} replicas are ready")


def _deployment(facts: Facts) -> Deployment | None:
    return next((one for one in facts.deployments or () if one.metadata.name == facts.account[1]), None)


def check_leases(facts: Facts, election: LeaderElectionSettings, work: Work) -> Iterator[Finding]:
    """Checks that one replica leads, and only one."""
    if not election.leader_elect:
        yield found("lease", "ok", "the configuration elects no leader: a single process schedules")
        return
    if facts.leases is None:
        yield found("lease", "unknown", facts.unread.get("leases", "not read"), _may_list("leases"))
        return
    namespace, name = election.resource_namespace, election.resource_name
    logs = f"kubectl -n {facts.account[0]} logs -l app.kubernetes.io/name={facts.account[1]} --tail=50"
    mine = [one for one in facts.leases if one.metadata.name == name]
    one = next((each for each in mine if each.metadata.namespace == namespace), None)
    renewed = None if one is None else one.spec.renew_time
    if (one is None or not _lives(one, facts.now)) and work.goes_on(renewed):
        gone = (
            f"there is no Lease {namespace}/{name}"
            if one is None
            else f"nobody holds the Lease {namespace}/{name}"
        )
        text = f"{gone}, and {work.text(facts.now)}: a scheduler without leader election does it"
        yield found("lease", "warning", text, _ALONE)
    elif one is None:
        text = f"there is no Lease {namespace}/{name}: no replica has ever led, and {work.text(facts.now)}"
        yield found("lease", "problem", text, logs)
    elif not one.spec.holder_identity:
        text = f"the Lease {namespace}/{name} has no holder: the last leader ended, and no replica leads"
        yield found("lease", "problem", text, logs)
    elif not _lives(one, facts.now):
        ago = "never" if renewed is None else f"{(facts.now - renewed).total_seconds():.0f} s ago"
        text = f"the Lease {namespace}/{name} has expired: {one.spec.holder_identity} renewed it {ago}"
        yield found("lease", "problem", text, logs)
    else:
        yield found("lease", "ok", f"{one.spec.holder_identity} leads")
        yield from _check_holders_clock(one)
    others = [each for each in mine if each is not one and _lives(each, facts.now)]
    for other in others:
        where = f"{other.metadata.namespace}/{name}"
        yield found(
            "lease",
            "problem" if one is not None and _lives(one, facts.now) else "warning",
            f"another scheduler leads by the Lease {where}: {other.spec.holder_identity}; two that serve the"
            " same schedulerName hand out the same devices twice",
            f"kubectl -n {other.metadata.namespace} get pods; end one, or give it another schedulerName",
        )


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Compares this machine's clock with the API server's."""
    if facts.ahead_s is None:
        yield found(
            "clock",
            "unknown",
            f"the API server's time is not known: {facts.unread.get('ahead_s', '')}",
            "See whether its answers have a Date, which a proxy may drop: kubectl get --raw /version -v=8",
        )
    elif abs(facts.ahead_s) > MAX_SKEW_S:
        text = f"this machine's clock is {_skew(facts.ahead_s)} the API server's"
        yield found("clock", "warning", text, "timedatectl set-ntp true")
    else:
        yield found("clock", "ok", f"this machine's clock is within {MAX_SKEW_S:g} s of the API server's")


def _check_holders_clock(lease: Lease) -> Iterator[Finding]:
    """Compares the time that the holder wrote with the API server's time of that write."""
    taken = max(
        (one.time for one in lease.metadata.managed_fields or () if one.time is not None), default=None
    )
    if taken is None or lease.spec.renew_time is None:
        return
    ahead_s = (lease.spec.renew_time - taken).total_seconds()
    # The server's time is in whole seconds, cut off, and the write has been on its way.
    if not -MAX_SKEW_S - 1.0 <= ahead_s <= MAX_SKEW_S + 1.0:
        text = f"the clock of {lease.spec.holder_identity} is {_skew(ahead_s)} the API server's"
        yield found("clock", "warning", text, "timedatectl set-ntp true, on that replica's node")


def _lives(lease: Lease, now: datetime) -> bool:
    """Whether the lease is held, by the API server's clock; a clock that is off by MAX_SKEW_S ends no
    lease."""
    if not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    lasts_s = (lease.spec.lease_duration_seconds or 0) + MAX_SKEW_S
    return (now - lease.spec.renew_time).total_seconds() < lasts_s


def _may_list(kinds: str) -> str:
    return f"Run this as a user who may list {kinds}, by a ClusterRole that is bound to that user."


def _skew(ahead_s: float) -> str:
    return f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" * (len(names) > _MAX_NAMED)
    return ", ".join(names[:_MAX_NAMED]) + more
