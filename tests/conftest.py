"""Fixtures that every test may use: a real control plane, and a clean cluster on it.

What does not live here: fakes and scenario builders; those are beside the tests that use them.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gangsched.errors import ApiError, ConfigError
from gangsched.lab.controlplane.assets import Assets, find
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.jaeger import Jaeger
from gangsched.lab.controlplane.processes import ControlPlane, minor_version
from tests.support import second_try

POD_GROUP_RESOURCES = (
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
)
ACCOUNT_RESOURCES = (
    "/api/v1/namespaces/default/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OUR_DEFINITION = "podgroups.scheduling.x-k8s.io"
"""Deployed with gangsched: it stays where it was once made."""
CLEAN_S = 30.0
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests saw and people want to know: `record_property("figure", "…")`."""
    reports = [one for ended in ("passed", "failed") for one in terminalreporter.stats.get(ended, ())]
    figures = [value for one in reports for name, value in one.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
        for figure in figures:
            terminalreporter.line(str(figure))
    second_try.report(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if second_try.too_many(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    second_try.mark(items)
    if hasattr(config, "workerinput"):  # one of several processes, which share the files out among them
        items[:] = longest_first(items)


def pytest_collection_finish() -> None:
    """The thousands of tests themselves are not visited by later collections, for hundreds of which some of
    them ask: one took a third of a second, and takes a hundredth of that."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor is what a file leaves behind."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """By file: those that may take longest, by their own timeouts, then those with the most tests.

    A file that takes minutes and comes last keeps one process busy while the others have nothing left to do.
    """
    timeouts: dict[Path, float] = {}
    n_tests = Counter(item.path for item in items)
    for item in items:
        marker = item.get_closest_marker("timeout")
        timeout_s = float(marker.args[0]) if marker is not None else 0.0
        timeouts[item.path] = max(timeouts.get(item.path, 0.0), timeout_s)
    return sorted(items, key=lambda item: (-timeouts[item.path], -n_tests[item.path]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`since(36)`: what the test is about begins with Kubernetes 1.36 (make versions runs older ones too)."""
    marker = item.get_closest_marker("since")
    if marker is not None and item.get_closest_marker("real") is not None:
        try:
            plane = minor_version(find().path("kube-apiserver"))
        except ConfigError:
            return  # skipped for that
        if plane < marker.args[0]:
            pytest.skip(f"begins with Kubernetes 1.{marker.args[0]}, this is 1.{plane}")


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The real binaries; without them the test is skipped with the command that brings them."""
    try:
        return find()
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real control plane: {error}")


@pytest.fixture(scope="session")
def control_plane(assets: Assets) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for this process (with pytest-xdist: one for each worker)."""
    # The data is thrown away: fsync would only measure the disk.
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.fixture(scope="session")
def littered_plane(assets: Assets) -> Iterator[ControlPlane]:
    """Another one, for suites that leave behind what must not meet the tests of the scheduler."""
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.fixture(scope="module")
def plane(assets: Assets) -> Iterator[ControlPlane]:
    """One of a file's own: nobody has applied anything to it."""
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.fixture(scope="session")
def jaeger() -> Iterator[Jaeger]:
    """A Jaeger for this process; tests tell their traces apart by trace id."""
    with found_jaeger() as running:
        yield running


def found_jaeger(env: Mapping[str, str] | None = None) -> Jaeger:
    """Not started yet; without its binary the test is skipped, or fails where everything must run."""
    try:
        return Jaeger(env)
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real Jaeger: {error}")


@pytest.fixture
def fresh_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with no pod, node or pod group left over when the test ends, however it ends; nor an
    account, a right that is not one of deploy/rbac.yaml's, or a kind that others define."""
    before = _accounts(control_plane)
    defined = {*_definitions(control_plane), OUR_DEFINITION}
    yield control_plane
    if control_plane.apiserver is None or not control_plane.apiserver.running:
        control_plane.start_apiserver()
    for scheduler in control_plane.schedulers:
        scheduler.kill()
    control_plane.schedulers.clear()
    wipe(control_plane)
    for path in sorted(_accounts(control_plane) - before):
        if not path.rsplit("/", 1)[1].startswith("gangsched"):
            control_plane.request("DELETE", path)
    _undefine(control_plane, keep=defined)


def _definitions(control_plane: ControlPlane) -> dict[str, bool]:
    """Whether each CustomResourceDefinition is being deleted."""
    items = control_plane.request("GET", DEFINITIONS)["items"]
    return {item["metadata"]["name"]: "deletionTimestamp" in item["metadata"] for item in items}


def _undefine(control_plane: ControlPlane, *, keep: set[str]) -> None:
    """Deletes the other definitions and waits until they are gone: the next test may define them, too."""
    deadline_s = time.monotonic() + CLEAN_S
    while left := {name: going for name, going in _definitions(control_plane).items() if name not in keep}:
        assert time.monotonic() < deadline_s, f"not gone after {CLEAN_S:.0f} s: {sorted(left)}"
        for name, is_going in left.items():
            if not is_going:
                control_plane.request("DELETE", f"{DEFINITIONS}/{name}")
        time.sleep(0.05)


def _accounts(control_plane: ControlPlane) -> set[str]:
    return {
        f"{resource}/{item['metadata']['name']}"
        for resource in ACCOUNT_RESOURCES
        for item in control_plane.request("GET", resource)["items"]
    }


def wipe(control_plane: ControlPlane) -> None:
    """Deletes them all and waits until they are gone; finalizers are taken off, nobody acts on them here."""
    deadline_s, n_left = time.monotonic() + CLEAN_S, 0
    resources = ("/api/v1/pods", *POD_GROUP_RESOURCES, "/api/v1/nodes")
    while left := [item for resource in resources for item in _list(control_plane, resource, deadline_s)]:
        if len(left) < n_left:
            deadline_s = time.monotonic() + CLEAN_S  # thousands take their time
        n_left = len(left)
        assert time.monotonic() < deadline_s, f"not gone after {CLEAN_S:.0f} s: {left}"
        for collection in sorted({collection for collection, _ in left}):
            control_plane.request("DELETE", f"{collection}?limit=500", AT_ONCE)
        for collection, item in left:
            if item["metadata"].get("finalizers"):
                _release(control_plane, f"{collection}/{item['metadata']['name']}")


def _list(control_plane: ControlPlane, resource: str, deadline_s: float) -> list[tuple[str, dict[str, Any]]]:
    """Each object with the path of the collection it is in; none where the API is not served.

    A server that has just started answers 429 for a custom resource until its storage is there.
    """
    while True:
        try:
            items = control_plane.request("GET", resource)["items"]
            break
        except ApiError as error:
            if error.code == 404:
                return []
            if error.code != 429 or time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)
    root, plural = resource.rsplit("/", 1)
    return [
        (
            f"{root}/namespaces/{where}/{plural}"
            if (where := item["metadata"].get("namespace"))
            else resource,
            item,
        )
        for item in items
    ]


def _release(control_plane: ControlPlane, path: str) -> None:
    patch = {"metadata": {"finalizers": None}}
    try:
        control_plane.request("PATCH", path, patch, content_type="application/merge-patch+json")
    except ApiError as error:
        if error.code != 404:
            raise
