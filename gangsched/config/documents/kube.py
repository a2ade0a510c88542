"""KubeSchedulerConfiguration, as kube-scheduler writes it.

Defaults are kube-scheduler's unless the comment differs. Sources: k8s.io/kube-scheduler `config/v1/types.go`,
kubernetes `pkg/scheduler/apis/config/v1/defaults.go`.
"""

from typing import Annotated, Any

from msgspec import Meta

from gangsched.config.documents import KUBE_API_VERSION, KUBE_KIND, Document
from gangsched.config.documents.extenders import ExtenderDocument


class PluginRef(Document, frozen=True):
    """weight is for score only; 0 and a missing weight mean 1."""

    name: str
    weight: int = 0


class PluginSet(Document, frozen=True):
    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class PluginSets(Document, frozen=True):
    """A profile's changes at each extension point; multiPoint means every point that a plugin serves."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()


class PluginArgs(Document, frozen=True):
    name: Annotated[str, Meta(description="A plugin's name.")]
    args: Annotated[
        dict[str, Any] | None,
        Meta(description="Its arguments; the tables below have ours."),
    ] = None


class Profile(Document, frozen=True):
    scheduler_name: Annotated[
        str | None,
        Meta(
            description="Pods that name it are this profile's. One unnamed profile is `default-scheduler`;"
            " there may be 1,000 profiles."
        ),
    ] = None
    percentage_of_nodes_to_score: Annotated[
        int | None,
        Meta(description="As the field above, for this profile."),
    ] = None
    plugins: Annotated[
        PluginSets,
        Meta(
            description="Which plugins run at which point: `multiPoint` or a point, each with `enabled` and"
            ' `disabled` lists of `{name, weight}`; `disabled: [{name: "*"}]` takes all defaults out.'
        ),
    ] = PluginSets()
    plugin_config: tuple[PluginArgs, ...] = ()


class LeaderElection(Document, frozen=True):
    """An unset leaderElect is false here (kube-scheduler: true), resourceName gangsched (kube-scheduler)."""

    leader_elect: Annotated[
        bool | None,
        Meta(description="Lead or follow by a Lease. Not set is false here and true in kube-scheduler."),
    ] = None
    lease_duration: Annotated[
        str,
        Meta(description="How long the followers wait for a silent leader."),
    ] = "15s"
    renew_deadline: Annotated[
        str,
        Meta(description="A leader that has not renewed for this long sends no further bind and exits."),
    ] = "10s"
    retry_period: Annotated[str, Meta(description="How often the Lease is renewed, or asked about.")] = "2s"
    resource_lock: Annotated[str, Meta(description="`leases` is the only kind there is.")] = "leases"
    resource_name: Annotated[
        str,
        Meta(description="The Lease's name; kube-scheduler's is `kube-scheduler`."),
    ] = "gangsched"
    resource_namespace: Annotated[str, Meta(description="The Lease's namespace.")] = "kube-system"


class ClientConnection(Document, frozen=True):
    """contentType is JSON here (kube-scheduler: protobuf)."""

    kubeconfig: Annotated[str, Meta(description="Used where the flag `--kubeconfig` is not given.")] = ""
    accept_content_types: Annotated[str, Meta(description="Accepted; JSON is spoken.")] = ""
    content_type: Annotated[str, Meta(description="Accepted; JSON is spoken.")] = "application/json"
    qps: Annotated[
        float,
        Meta(
            description="Accepted and without effect: `parallelism` and the server's fairness bound requests."
        ),
    ] = 50.0
    burst: Annotated[int, Meta(description="As `qps`.")] = 100


class KubeDocument(Document, frozen=True):
    """KubeSchedulerConfiguration. Profiling is off here (kube-scheduler: on)."""

    api_version: str = KUBE_API_VERSION
    kind: str = KUBE_KIND
    parallelism: Annotated[
        int,
        Meta(description="How many Bindings the API server is given to work on at once."),
    ] = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: Annotated[bool, Meta(description="Accepted; there are no profiling pages.")] = False
    enable_contention_profiling: Annotated[
        bool,
        Meta(description="Accepted; there are no profiling pages."),
    ] = False
    percentage_of_nodes_to_score: Annotated[
        int | None,
        Meta(description="Counts only with `earlyStop: true`; otherwise all nodes are scored."),
    ] = None
    pod_initial_backoff_seconds: Annotated[
        int,
        Meta(description="How long a group that failed waits before its next attempt; doubles each time."),
    ] = 1
    pod_max_backoff_seconds: Annotated[int, Meta(description="Where the doubling ends.")] = 10
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[ExtenderDocument, ...] = ()
    delay_cache_until_active: Annotated[
        bool,
        Meta(description="Accepted; a replica that does not lead follows everything."),
    ] = False
