"""The kinds that have their own rules: one strategy each, by resource.

Lives here: the table, and the objects that a cluster has initially. Called by process.app and tests.
"""

from __future__ import annotations

from gangsched.lab.apiserver.kinds.definitions import DefinitionStrategy
from gangsched.lab.apiserver.kinds.devices.claims import ClaimStrategy as DeviceClaimStrategy
from gangsched.lab.apiserver.kinds.devices.claims import TemplateStrategy
from gangsched.lab.apiserver.kinds.devices.classes import ClassStrategy, TaintRuleStrategy
from gangsched.lab.apiserver.kinds.devices.slices import SliceStrategy
from gangsched.lab.apiserver.kinds.events import EventStrategy, NewEventStrategy
from gangsched.lab.apiserver.kinds.leases import LeaseStrategy
from gangsched.lab.apiserver.kinds.metrics import NodeMetricsStrategy, PodMetricsStrategy
from gangsched.lab.apiserver.kinds.namespaces import NamespaceStrategy
from gangsched.lab.apiserver.kinds.nodes import NodeStrategy
from gangsched.lab.apiserver.kinds.pods.binding import BindingStrategy
from gangsched.lab.apiserver.kinds.pods.pods import PodStrategy
from gangsched.lab.apiserver.kinds.reviews import (
    AccessReviewStrategy,
    RulesReviewStrategy,
    SelfReviewStrategy,
    TokenReviewStrategy,
)
from gangsched.lab.apiserver.kinds.stored import (
    DataStrategy,
    FlowStrategy,
    RoleBindingStrategy,
    RoleStrategy,
    SecretStrategy,
    ServiceStrategy,
    StorageClassStrategy,
)
from gangsched.lab.apiserver.kinds.volumes import ClaimStrategy, VolumeStrategy
from gangsched.lab.apiserver.kinds.workloads.budgets import BudgetStrategy
from gangsched.lab.apiserver.kinds.workloads.deployments import DeploymentStrategy
from gangsched.lab.apiserver.kinds.workloads.jobs import JobStrategy
from gangsched.lab.apiserver.kinds.workloads.pod_groups import PodGroupStrategy
from gangsched.lab.apiserver.kinds.workloads.priority_classes import (
    SYSTEM,
    SYSTEM_DESCRIPTIONS,
    PriorityClassStrategy,
)
from gangsched.lab.apiserver.resources import METRICS
from gangsched.lab.apiserver.strategy import Cluster, Object, Strategy

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def builtin_strategies(
    *,
    service_accounts: bool = False,
    not_ready_taint: bool = False,
    podgroup_protection: bool = True,
    podgroup_claims: bool = False,
) -> dict[str, Strategy]:
    """Returns strategies by `Resource.key`. The options are admission plugins that are useful only if a
    controller acts on their changes.

    `service_accounts`: pods run as the account `default` of their namespace. `not_ready_taint`: a new node is
    tainted until it is ready. `podgroup_protection`: core PodGroups get the finalizer that a controller
    removes. `podgroup_claims`: they keep the resource claims that their members share, which is the feature
    gate DRAWorkloadResourceClaims.
    """
    return {
        "/pods": PodStrategy(service_accounts=service_accounts),
        "/bindings": BindingStrategy(),
        "/nodes": NodeStrategy(not_ready_taint=not_ready_taint),
        "/namespaces": NamespaceStrategy(),
        "/events": EventStrategy(),
        "events.k8s.io/events": NewEventStrategy(),
        "coordination.k8s.io/leases": LeaseStrategy(),
        "scheduling.k8s.io/priorityclasses": PriorityClassStrategy(),
        "scheduling.k8s.io/podgroups": PodGroupStrategy(
            protection=podgroup_protection, claims=podgroup_claims
        ),
        "policy/poddisruptionbudgets": BudgetStrategy(),
        "apiextensions.k8s.io/customresourcedefinitions": DefinitionStrategy(),
        "batch/jobs": JobStrategy(),
        "apps/deployments": DeploymentStrategy(),
        **_devices(),
        **_stored(),
        **_reviews(),
    }


def serve_metrics(cluster: Cluster) -> None:
    """Serves what a metrics-server adds to a cluster."""
    for resource, strategy in zip(METRICS, (NodeMetricsStrategy(), PodMetricsStrategy()), strict=True):
        cluster.serve(resource, strategy)


def _devices() -> dict[str, Strategy]:
    group = "resource.k8s.io"
    return {
        f"{group}/deviceclasses": ClassStrategy(),
        f"{group}/devicetaintrules": TaintRuleStrategy(),
        f"{group}/resourceclaims": DeviceClaimStrategy(),
        f"{group}/resourceclaimtemplates": TemplateStrategy(),
        f"{group}/resourceslices": SliceStrategy(),
    }


def _stored() -> dict[str, Strategy]:
    rbac, flow = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io"
    return {
        "/configmaps": DataStrategy(),
        "/secrets": SecretStrategy(),
        "/services": ServiceStrategy(),
        "/persistentvolumes": VolumeStrategy(),
        "/persistentvolumeclaims": ClaimStrategy(),
        f"{rbac}/roles": RoleStrategy(),
        f"{rbac}/clusterroles": RoleStrategy(),
        f"{rbac}/rolebindings": RoleBindingStrategy(),
        f"{rbac}/clusterrolebindings": RoleBindingStrategy(),
        f"{flow}/flowschemas": FlowStrategy(),
        f"{flow}/prioritylevelconfigurations": FlowStrategy(),
        "storage.k8s.io/storageclasses": StorageClassStrategy(),
    }


def _reviews() -> dict[str, Strategy]:
    authorization, authentication = "authorization.k8s.io", "authentication.k8s.io"
    return {
        f"{authorization}/subjectaccessreviews": AccessReviewStrategy(),
        f"{authorization}/selfsubjectaccessreviews": AccessReviewStrategy(),
        f"{authorization}/localsubjectaccessreviews": AccessReviewStrategy(),
        f"{authorization}/selfsubjectrulesreviews": RulesReviewStrategy(),
        f"{authentication}/selfsubjectreviews": SelfReviewStrategy(),
        f"{authentication}/tokenreviews": TokenReviewStrategy(),
    }


def bootstrap(cluster: Cluster) -> None:
    """Create the objects of an unused real cluster: namespaces, system priority classes."""
    for name in NAMESPACES:
        _create(cluster, "namespaces", {"metadata": {"name": name}})
    for name, value in SYSTEM.items():
        priority_class: Object = {
            "metadata": {"name": name},
            "value": value,
            "description": SYSTEM_DESCRIPTIONS[name],
        }
        _create(cluster, "priorityclasses.scheduling.k8s.io", priority_class)


def _create(cluster: Cluster, resource: str, obj: Object) -> None:
    found = cluster.resource(resource)
    if cluster.find(found, "", obj["metadata"]["name"]) is None:
        cluster.create(found, obj)
