"""Each right of deploy/resource-claims.yaml is needed, and is named where it is missing, with each Kubernetes
that asks for it; an older one allocates and binds without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import pytest
import yaml

from tests.proxy import Proxy, Rule
from tests.real.claimed import CLAIM_RIGHTS, ClaimCluster, wish
from tests.real.picture import reason_of
from tests.real.process import service_account
from tests.support.applying import apply
from tests.support.threads import in_a_thread

pytestmark = pytest.mark.real

SINCE = {"resourceclaims/binding": 36, "devicetaintrules": 37}
"""By resource: the minor version of Kubernetes that begins to ask for the right, or to serve it."""
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-resource-claims"


def documented() -> Iterator[tuple[str, str]]:
    """(verb, resource) of each right of deploy/resource-claims.yaml."""
    role = next(yaml.safe_load_all(CLAIM_RIGHTS.read_text()))
    for rule in role["rules"]:
        yield from product(rule["verbs"], rule["resources"])


def allow_all_but(cluster: ClaimCluster, verb: str, resource: str) -> None:
    """The rights of deploy/resource-claims.yaml without one of them."""
    role = next(yaml.safe_load_all(CLAIM_RIGHTS.read_text()))
    rules = [
        {**rule, "resources": [one], "verbs": [v for v in rule["verbs"] if (v, one) != (verb, resource)]}
        for rule in role["rules"]
        for one in rule["resources"]
    ]
    body = {**role, "rules": [rule for rule in rules if rule["verbs"]]}
    cluster.plane.request("PUT", ROLE, body)


def ready_without(cluster: ClaimCluster, verb: str, resource: str) -> None:
    """Gang `a` with its claims made, which only the missing right keeps from being bound."""
    cluster.offer(1)
    cluster.device_class()
    cluster.template("one", wish())
    cluster.claiming("a", pods=2)
    cluster.resolved("a")
    allow_all_but(cluster, verb, resource)


def is_asked_for(cluster: ClaimCluster, resource: str) -> bool:
    """Whether this API server knows what the right is about; an older one has no use for it."""
    return cluster.plane.minor_version >= SINCE.get(resource, 0)


@pytest.mark.parametrize("what", [resource for verb, resource in documented() if verb == "patch"])
def test_a_missing_right_to_write_is_named_by_the_pods(claim_cluster: ClaimCluster, what: str) -> None:
    c = claim_cluster
    c.offer(1, devices=4)
    c.device_class()
    c.template("one", wish())
    allow_all_but(c, "patch", what)
    c.schedule()
    c.claiming("a", pods=2)
    if is_asked_for(c, what):
        c.held("a", says=f'cannot patch resource "{what}"')
        assert not c.devices_of("a")
        apply(c.plane, CLAIM_RIGHTS)
    c.whole("a")


@pytest.mark.parametrize("what", [resource for verb, resource in documented() if verb == "list"])
def test_a_missing_right_to_list_is_named_by_the_pods(claim_cluster: ClaimCluster, what: str) -> None:
    c = claim_cluster
    ready_without(c, "list", what)
    c.schedule()
    if is_asked_for(c, what):
        says = f"it is not known which {what}.resource.k8s.io there are: listing them is not allowed"
        c.picture.until(lambda: all(says in reason_of(pod) for pod in c.members("a")), "the right is named")
        assert not c.n_bound("a")
        apply(c.plane, CLAIM_RIGHTS)
    c.whole("a")


@pytest.mark.parametrize("what", [resource for verb, resource in documented() if verb == "watch"])
def test_a_missing_right_to_watch_is_named_in_the_log(claim_cluster: ClaimCluster, what: str) -> None:
    c = claim_cluster
    ready_without(c, "watch", what)
    scheduler = c.schedule()
    if is_asked_for(c, what):
        says = f"cannot follow kind={what}.resource.k8s.io"
        c.eventually(lambda: says in scheduler.said, "the right is named")
        assert f'cannot watch resource \\"{what}\\"' in scheduler.said
        apply(c.plane, CLAIM_RIGHTS)
    c.whole("a")


def test_a_missing_right_to_get_is_named_by_an_event(claim_cluster: ClaimCluster) -> None:
    """A claim is asked about once the answer to a write was lost."""
    c = claim_cluster
    c.offer(1)
    c.device_class()
    c.template("one", wish())
    allow_all_but(c, "get", "resourceclaims")
    proxy, certificate = Proxy.before(c.plane, c.directory)
    is_written = re.compile("PATCH .*/resourceclaims/a-0-own-[^/]*/status")
    proxy.rule(Rule(lambda request: is_written.match(request) is not None, cut_after=True))
    path = c.directory / "through.yaml"
    with in_a_thread(proxy):
        account = service_account(c.plane, path, server=proxy.url, ca_file=certificate)
        scheduler = c.schedule(kubeconfig=account)
        c.claiming("a", pods=2)
        note = c.event("AnswerUnclear", "a-0", "a-1")["note"]
        assert "reading resource claim default/a-0-own-" in note
        assert 'cannot get resource "resourceclaims"' in note
        assert not c.n_bound("a")
        apply(c.plane, CLAIM_RIGHTS)
        c.whole("a")
        scheduler.stop_cleanly()


def test_each_documented_right_is_missed_by_a_test() -> None:
    reads = product(("list", "watch"), ("devicetaintrules", "resourceclaims", "resourceslices"))
    writes = product(("patch",), ("resourceclaims", "resourceclaims/status", "resourceclaims/binding"))
    made = {
        ("create", "resourceclaims"),
        ("delete", "resourceclaims"),
    }  # tests/real/test_extended_resources.py
    assert {*documented()} == {("get", "resourceclaims"), *reads, *writes, *made}
