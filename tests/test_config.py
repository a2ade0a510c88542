"""The configuration file: defaults, kube-scheduler's merging rules, and every error with its path."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangsched.command.cli import _parser
from gangsched.config import (
    LeaderElectionSettings,
    PluginInfo,
    SchedulerConfig,
    Settings,
    default_config,
    parse_config,
)
from gangsched.config.queueing import QueueingSettings
from gangsched.errors import ConfigError
from gangsched.model.owners import DEFAULT_INFERRED
from gangsched.plugins import IN_TREE
from gangsched.plugins.resources.node_resources_fit import Args as FitArgs
from gangsched.process.flags import election_flags
from gangsched.reading.yaml_bounds import check_yaml
from tests.support.yaml_bombs import BOMBS, refused

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS = "---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n"


BOUND = QueueingSettings(mode="budget", gangs_alone=True, writes_estimates=False)
"""That of gangs: on by default."""


def parse(body: str = "", ours: str | None = None) -> SchedulerConfig:
    text = HEAD + textwrap.dedent(body)
    if ours is not None:
        text += OURS + textwrap.dedent(ours)
    return parse_config(text, source="f.yaml", plugins=IN_TREE)


def profile(plugins: str, config: str = "[]") -> str:
    return f"profiles: [{{schedulerName: g, plugins: {plugins}, pluginConfig: {config}}}]"


def at(body: str, point: str) -> list[str]:
    return list(parse(body).profiles[0].plugins[point])


# -- defaults ----------------------------------------------------------------------------------------


def test_an_empty_configuration_has_kube_schedulers_defaults() -> None:
    config = parse()
    inferred = {"default-scheduler": DEFAULT_INFERRED}
    assert config.settings == Settings(infer_gangs=inferred, queueing=BOUND)
    assert config.profiles[0].scheduler_name == "default-scheduler"
    assert config.notes == (
        "leaderElection.leaderElect is not set: it is false, in kube-scheduler true",
        "profiles[0].schedulerName is not set: it is default-scheduler, as in kube-scheduler",
    )
    assert default_config(IN_TREE).profiles[0].scheduler_name == "gangsched"
    assert default_config(IN_TREE).profiles[0].plugins == config.profiles[0].plugins
    assert default_config(IN_TREE).notes == ()


def test_the_example_file_is_valid_and_means_what_it_says() -> None:
    path = Path(__file__).parent.parent / "config" / "scheduler.yaml"
    config = parse_config(path.read_text(), source="scheduler.yaml", plugins=IN_TREE)
    assert config.settings == Settings(infer_gangs={"gangsched": DEFAULT_INFERRED}, queueing=BOUND)
    assert config.notes == ()
    assert [one.scheduler_name for one in config.profiles] == ["gangsched"]
    assert config.profiles[0].args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"


def test_our_settings_are_read() -> None:
    config = parse(
        "parallelism: 4\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 20\n",
        """
        onPartialBind: unwind
        settleSeconds: 5
        permitWaitSeconds: 0.5
        unschedulableFlushSeconds: 60
        topologyKey: rack
        invalidInventory: counts
        allowEviction: false
        reporting""".rstrip()
        + "Controller: g2\n",
    )
    expected = Settings("unwind", 5.0, 0.5, 60.0, "rack", "counts", False, "g2", 2.0, 20.0, 4)
    assert replace(config.settings, infer_gangs={}, queueing=None) == expected


def test_nulls_are_as_good_as_nothing() -> None:
    assert parse("leaderElection:\nprofiles:\n", "settleSeconds:\n") == parse()


def test_the_documents_may_come_in_any_order() -> None:
    text = OURS + "settleSeconds: 7\n---\n" + HEAD
    assert parse_config(text, source="", plugins=IN_TREE).settings.settle_s == 7.0


def test_what_does_nothing_here_is_noted() -> None:
    config = parse(
        """
        percentageOfNodesToScore: 50
        enableProfiling: true
        delayCacheUntilActive: true
        leaderElection: {leaderElect: false}
        clientConnection: {contentType: application/vnd.kubernetes.protobuf, qps: 50, burst: 100}
        profiles:
        - schedulerName: g
          percentageOfNodesToScore: 0
          plugins:
            permit: {enabled: [{name: DeferredPodScheduling}]}
            multiPoint: {enabled: [{name: DeferredPodScheduling}, {name: NodeDeclaredFeatures}]}
        """
    )
    assert config.notes == (
        "percentageOfNodesToScore 50: all nodes are always scored; earlyStop has it count",
        "clientConnection.contentType application/vnd.kubernetes.protobuf: JSON is spoken",
        "enableProfiling, enableContentionProfiling: there are no profiling endpoints",
        "delayCacheUntilActive: without leader election the only replica is always active",
        "profiles[0].percentageOfNodesToScore 0: all nodes are always scored; earlyStop has it count",
        "profiles[0].plugins.multiPoint.enabled[0]: DeferredPodScheduling is not there: nothing is deferred",
    )
    assert "DeferredPodScheduling" not in config.profiles[0].plugins["permit"]


# -- leader election -----------------------------------------------------------------------------------

SHORT = "leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 0.5s}"


def test_leader_election_is_read() -> None:
    assert parse().leader_election == LeaderElectionSettings(
        False, 15.0, 10.0, 2.0, "gangsched", "kube-system"
    )
    body = SHORT.replace("}", ", resourceName: g.2, resourceNamespace: apps}")
    assert parse(body).leader_election == LeaderElectionSettings(True, 3.0, 2.0, 0.5, "g.2", "apps")
    delayed = parse(SHORT + "\ndelayCacheUntilActive: true\n")
    assert "delayCacheUntilActive: a replica that does not lead follows everything" in delayed.notes


def test_an_order_that_does_not_matter_is_not_checked() -> None:
    assert not parse("leaderElection: {leaderElect: false, leaseDuration: 1s}").leader_election.leader_elect


def test_flags_override_the_file_before_anything_is_checked() -> None:
    wrong = HEAD + SHORT.replace("leaseDuration: 3s", "leaseDuration: 1s")
    flags: dict[str, str | bool] = {"lease_duration": "1m1.5s", "retry_period": "100ms", "resource_name": "x"}
    found = parse_config(wrong, source="f.yaml", plugins=IN_TREE, election_flags=flags).leader_election
    assert found == LeaderElectionSettings(True, 61.5, 2.0, 0.1, "x", "kube-system")
    assert default_config(IN_TREE, election_flags={"leader_elect": True}).leader_election.leader_elect


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"renew_deadline": "soon"},
         "--leader-elect-renew-deadline: 'soon' is not a duration; examples: 15s, 1m30s"),
        ({"lease_duration": "2s"},
         "--leader-elect-lease-duration: 2s is not greater than renewDeadline, 2s"),
        ({"retry_period": "5s"},
         "f.yaml: leaderElection.renewDeadline: 2s is not greater than 1.2 times retryPeriod, 5s"),
    ],
)  # fmt: skip
def test_mistakes_in_flags(flags: dict[str, str | bool], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(HEAD + SHORT, source="f.yaml", plugins=IN_TREE, election_flags=flags)
    assert str(caught.value) == message


def test_the_command_line_gives_the_flags() -> None:
    line = ["scheduler", "--leader-elect", "--leader-elect-lease-duration=3s"]
    assert election_flags(_parser(line).parse_args(line)) == {"leader_elect": True, "lease_duration": "3s"}
    line = ["scheduler", "--leader-elect=false", "--leader-elect-resource-namespace", "apps"]
    expected = {"leader_elect": False, "resource_namespace": "apps"}
    assert election_flags(_parser(line).parse_args(line)) == expected
    assert election_flags(_parser(["scheduler"]).parse_args(["scheduler"])) == {}
    with pytest.raises(SystemExit):
        _parser(line).parse_args(["scheduler", "--leader-elect=perhaps"])


# -- plugins -----------------------------------------------------------------------------------------

_LIGHT = {
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "RemainingBandwidth": 1,
}


def test_a_point_can_be_emptied_and_filled() -> None:
    body = profile("{score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 7}]}}")
    assert at(body, "score") == ["NodeAffinity"]
    assert parse(body).profiles[0].weights == {"NodeAffinity": 7}
    assert "NodeResourcesFit" in at(body, "filter")


def test_an_unknown_name_among_the_disabled_is_reported_and_disables_nothing() -> None:
    """As in kube-scheduler, of which a published example disables a plugin by a misspelt name."""
    misspelt = parse(
        profile("{score: {disabled: [{name: Tolerations}]}, multiPoint: {disabled: [{name: Foo}]}}")
    )
    path = "profiles[0].plugins"
    assert {note for note in misspelt.notes if "unknown" in note} == {
        f"{path}.score.disabled[0].name: unknown plugin 'Tolerations', so this disables nothing;"
        " did you mean TaintToleration?",
        f"{path}.multiPoint.disabled[0].name: unknown plugin 'Foo', so this disables nothing",
    }
    assert misspelt.profiles[0].plugins == parse(profile("{}")).profiles[0].plugins


def test_one_plugin_can_be_disabled_at_one_point() -> None:
    body = profile("{filter: {disabled: [{name: NodePorts}, {name: VolumeZone}]}}")
    assert "NodePorts" not in at(body, "filter")
    assert "NodePorts" in at(body, "preFilter")


def test_a_default_that_is_named_again_runs_first_with_the_files_weight() -> None:
    body = profile("{score: {enabled: [{name: NodeResourcesFit, weight: 9}, {name: NodeAffinity}]}}")
    others = [
        "TaintToleration",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
        "RemainingBandwidth",
    ]
    assert at(body, "score") == ["NodeResourcesFit", "NodeAffinity", *others]
    weights = {"NodeResourcesFit": 9, "NodeAffinity": 1, "TaintToleration": 3}
    assert parse(body).profiles[0].weights == weights | _LIGHT


def test_the_points_own_list_wins_over_multi_point_and_that_over_the_defaults() -> None:
    body = profile(
        "{multiPoint: {enabled: [{name: NodeAffinity, weight: 8}, {name: TaintToleration, weight: 8}]},"
        " score: {enabled: [{name: TaintToleration, weight: 9}]}}"
    )
    weights = {"TaintToleration": 9, "NodeAffinity": 8, "NodeResourcesFit": 1}
    assert parse(body).profiles[0].weights == weights | _LIGHT
    assert at(body, "filter")[:4] == ["NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity"]


def test_multi_point_can_replace_all_defaults() -> None:
    body = profile(
        "{multiPoint: {disabled: [{name: '*'}], enabled:"
        " [{name: Devices}, {name: NodeResourcesFit}, {name: PrioritySort}, {name: DefaultBinder}]}}"
    )
    assert at(body, "filter") == ["Devices", "NodeResourcesFit"]
    assert parse(body).profiles[0].weights == {"NodeResourcesFit": 1}


def test_a_plugin_from_outside_is_not_a_default() -> None:
    extra = {**IN_TREE, "Extra": PluginInfo("Extra", frozenset({"filter"}), is_default=False)}
    assert "Extra" not in default_config(extra).profiles[0].plugins["filter"]
    text = HEAD + profile("{filter: {enabled: [{name: Extra}]}}")
    config = parse_config(text, source="", plugins=extra)
    assert config.profiles[0].plugins["filter"][-1] == "Extra"


def test_args_are_decoded_with_defaults() -> None:
    strategy = "{type: MostAllocated, resources: [{name: cpu, weight: 2}]}"
    args = f"{{scoringStrategy: {strategy}, kind: NodeResourcesFitArgs}}"
    found = (
        parse(profile("{}", f"[{{name: NodeResourcesFit, args: {args}}}]"))
        .profiles[0]
        .args["NodeResourcesFit"]
    )
    assert isinstance(found, FitArgs)
    assert [(one.name, one.weight) for one in found.scoring_strategy.resources] == [("cpu", 2)]
    assert parse().profiles[0].args["NodeResourcesFit"] == FitArgs()


# -- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ("paralellism: 4", "paralellism", "unknown field; did you mean parallelism?"),
        ("zzz: 4", "zzz", "unknown field"),
        ("parallelism: many", "parallelism", "'many' is not a whole number"),
        ("parallelism: 0", "parallelism", "0 is not greater than 0"),
        ('extenders: [{urlPrefix: "https://a", tlsConfig: {caFile: "a\\0"}}]',
         "extenders[0].tlsConfig.caFile", "'a\\x00' has a character that no text here has"),
        ("parallelism: 2147483647", "parallelism", "2147483647 is more than 1000"),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds", "0 is not greater than 0"),
        ("podMaxBackoffSeconds: 0", "podMaxBackoffSeconds", "0 is less than podInitialBackoffSeconds, 1"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore", "101 is not within 0..100"),
        ("leaderElection: {leaderElekt: true}", "leaderElection.leaderElekt",
         "unknown field; did you mean leaderElect?"),
        ("leaderElection: {leaderElect: true, leaseDuration: 1000000h}", "leaderElection.leaseDuration",
         "1000000h is more than a Lease can say, 2147483647s"),
        ("clientConnection: {qps: .inf}", "clientConnection.qps", "inf is not a number of requests"),
        ("leaderElection: {leaseDuration: soon}", "leaderElection.leaseDuration",
         "'soon' is not a duration; examples: 15s, 1m30s"),
        ("leaderElection: {leaderElect: true, leaseDuration: 10s}", "leaderElection.leaseDuration",
         "10s is not greater than renewDeadline, 10s"),
        ("leaderElection: {leaderElect: true, renewDeadline: 2400ms}", "leaderElection.renewDeadline",
         "2400ms is not greater than 1.2 times retryPeriod, 2s"),
        ("leaderElection: {leaderElect: true, retryPeriod: 0s}", "leaderElection.retryPeriod",
         "0s is not greater than 0"),
        ("leaderElection: {resourceLock: endpointsleases}", "leaderElection.resourceLock",
         "'endpointsleases' is not there; only leases is"),
        ("leaderElection: {resourceName: a/b}", "leaderElection.resourceName",
         "'a/b' is not an object's name"),
        ("leaderElection: {resourceNamespace: ''}", "leaderElection.resourceNamespace",
         "'' is not a namespace's name"),
        ("extenders: [{urlPrefix: x}]", "extenders[0].urlPrefix",
         "'x' is not the URL of an extender, as http://127.0.0.1:8888 is"),
        ("extenders: [{filterVerb: x}]", "extenders[0]", "object missing required field urlPrefix"),
        ("extenders: [{urlPrefix: 'http://x', preemptVerb: p}]", "extenders[0].preemptVerb",
         "is not there: extenders are not asked about victims; leave it out"),
        ("extenders: [{urlPrefix: 'http://x', prioritizeVerb: p}]", "extenders[0].weight",
         "0 is not greater than 0"),
        ("extenders: [{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', bindVerb: b}]",
         "extenders[1].bindVerb", "only one extender can bind, extenders[0] does"),
        ("extenders: [{urlPrefix: 'http://x', managedResources: [{name: cpu}]}]",
         "extenders[0].managedResources[0].name", "'cpu' is not the name of an extended resource"),
        ("extenders: [{urlPrefix: 'http://x', httpTimeout: 5}]", "extenders[0].httpTimeout",
         '5 is not text; write "5", in quotes'),
        ("extenders: [{urlPrefix: 'http://x', tlsConfig: {caData: '!'}}]",
         "extenders[0].tlsConfig.caData", "is not base64"),
        ("extenders: [{urlPrefix: 'http://x', tlsConfig: {certFile: c}}]",
         "extenders[0].tlsConfig", "a certificate and its key are both needed, or neither"),
        ("profiles: {}", "profiles", "is a mapping, not a list"),
        ("profiles: [{schedulerName: 1}]", "profiles[0].schedulerName",
         '1 is not text; write "1", in quotes'),
        ("profiles: [{}, {schedulerName: a}]", "profiles[0].schedulerName",
         "is required where there are several profiles"),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName",
         "'a' is the name of profiles[0] already"),
        ("profiles: [{schedulerName: a, percentageOfNodesToScore: -1}]",
         "profiles[0].percentageOfNodesToScore", "-1 is not within 0..100"),
        ("profiles: [{schedulerName: a, pluginz: {}}]", "profiles[0].pluginz",
         "unknown field; did you mean plugins?"),
        (profile("{scores: {}}"), "profiles[0].plugins.scores", "unknown field; did you mean score?"),
        (profile("{score: {enabled: [{name: NodeAffinity}, {name: NodeAfinity}]}}"),
         "profiles[0].plugins.score.enabled[1].name",
         "unknown plugin 'NodeAfinity'; did you mean NodeAffinity?"),
        (profile("{score: {enabled: [{name: NodeDeclaredFeatures}]}}"),
         "profiles[0].plugins.score.enabled[0].name",
         "NodeDeclaredFeatures does not serve score; it serves filter, preFilter"),
        (profile("{}", "[{name: DynamicResources, args: {filterTimeout: soon}}]"),
         "profiles[0].pluginConfig[0].args.filterTimeout", "'soon' is not a duration; examples: 15s, 1m30s"),
        (profile("{}", "[{name: DynamicResources, args: {bindingTimeout: 1ms}}]"),
         "profiles[0].pluginConfig[0].args.bindingTimeout", "1ms is below 1s"),
        (profile("{score: {enabled: [{name: NodePorts}]}}"), "profiles[0].plugins.score.enabled[0].name",
         "NodePorts does not serve score; it serves filter, preFilter"),
        (profile("{score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}"),
         "profiles[0].plugins.score.enabled[1].name", "NodeAffinity is enabled twice"),
        (profile("{score: {enabled: [{name: NodeAffinity, weight: -1}]}}"),
         "profiles[0].plugins.score.enabled[0].weight", "-1 is not within 0..2147483647"),
        (profile("{score: {enabled: [{weight: 1}]}}"), "profiles[0].plugins.score.enabled[0]",
         "object missing required field name"),
        (profile("{queueSort: {disabled: [{name: '*'}]}}"), "profiles[0].plugins.queueSort",
         "exactly one queue sort plugin is needed, there are 0"),
        (profile("{bind: {disabled: [{name: DefaultBinder}]}}"), "profiles[0].plugins.bind",
         "at least one bind plugin is needed; there is DefaultBinder"),
        (profile("{}", "[{name: Nothing}]"), "profiles[0].pluginConfig[0].name", "unknown plugin 'Nothing';"
         " one of your own comes by --plugin FILE, or as an installed entry point gangsched.plugins"),
        (profile("{}", "[{name: NodeAffinity}, {name: NodeAffinity}]"), "profiles[0].pluginConfig[1].name",
         "NodeAffinity is configured twice"),
        (profile("{}", "[{name: PrioritySort, args: {x: 1}}]"), "profiles[0].pluginConfig[0].args",
         "PrioritySort takes no args"),
        (profile("{}", "[{name: NodeAffinity, args: {kind: NodePortsArgs}}]"),
         "profiles[0].pluginConfig[0].args.kind", "'NodePortsArgs' should be 'NodeAffinityArgs'"),
        (profile("{}", "[{name: NodeResourcesFit, args: {ignoredResource: []}}]"),
         "profiles[0].pluginConfig[0].args.ignoredResource", "unknown field; did you mean ignoredResources?"),
        (profile("{}", "[{name: NodeResourcesFit, args: {scoringStrategy: {type: mostAllocated}}}]"),
         "profiles[0].pluginConfig[0].args.scoringStrategy.type",
         "'mostAllocated' is not one of LeastAllocated, MostAllocated, RequestedToCapacityRatio;"
         " did you mean MostAllocated?"),
        (profile("{}", "[{name: NodeResourcesFit, args: {scoringStrategy: {resources: [{name: a}, {name: b,"
                 " weight: 200}]}}}]"),
         "profiles[0].pluginConfig[0].args.scoringStrategy.resources[1].weight",
         "resource weight of b is 200, not within 1..100"),
        (profile("{}", "[{name: NodeAffinity, args: {addedAffinity:"
                 " {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions:"
                 " [{key: a, operator: Exists}, {key: b c, operator: Exists}]}]}}}}]"),
         "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
         ".nodeSelectorTerms[0].matchExpressions[1].key", "'b c' is not a label's key"),
        (profile("{}", "[{name: NodeResourcesFit, args: {scoringStrategy: {resources: []}}}]"),
         "profiles[0].pluginConfig[0].args.scoringStrategy", "object missing required field type"),
        (profile("{}", "[{name: NodeAffinity, args: {addedAffinity: {requiredDuringScheduling: {}}}}]"),
         "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringScheduling",
         "unknown field; did you mean requiredDuringSchedulingIgnoredDuringExecution?"),
    ],
)  # fmt: skip
def test_mistakes_in_kube_schedulers_document(body: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(body)
    assert (caught.value.path, caught.value.message) == (path, message)
    assert str(caught.value) == f"f.yaml: {path}: {message}"


NOT_A_TEXT = "has a character that no text here has"
NOT_A_NAME = "is not a name of 1 to 128 characters, as gangsched or example.com/a is"


@pytest.mark.parametrize(
    ("ours", "path", "message"),
    [
        ("settleSecond: 3", "settleSecond", "unknown field; did you mean settleSeconds?"),
        ("settleSeconds: 0", "settleSeconds", "0 is not greater than 0 and at most 86400"),
        ("settleSeconds: .nan", "settleSeconds", "nan is not greater than 0 and at most 86400"),
        ("settleSeconds: 30s", "settleSeconds", "'30s' is not a number; write 30, the number of seconds"),
        ("settleSeconds: '30'", "settleSeconds", "'30' is not a number; write 30, without quotes"),
        ("settleSeconds: [30]", "settleSeconds", "is a list, not a number"),
        ("searchPlacements: 1.5", "searchPlacements", "1.5 is not a whole number"),
        ("allowEviction: 'True'", "allowEviction",
         "'True' is not true or false; write true, without quotes"),
        ("topologyKey: 5", "topologyKey", '5 is not text; write "5", in quotes'),
        ("permitWaitSeconds: 901", "permitWaitSeconds", "901 is not greater than 0 and at most 900"),
        ("searchPlacements: -1", "searchPlacements", "-1 is not within 0..1000000"),
        ("searchVictims: 0", "searchVictims", "0 is not within 1..1000000"),
        ("unschedulableFlushSeconds: -1", "unschedulableFlushSeconds",
         "-1 is not greater than 0 and at most 86400"),
        ("onPartialBind: complet", "onPartialBind",
         "'complet' is not one of complete, unwind; did you mean complete?"),
        ("invalidInventory: 3", "invalidInventory", "3 is not one of nothing, counts"),
        ("allowEviction: sometimes", "allowEviction", "'sometimes' is not true or false"),
        ("topologyKey: a b", "topologyKey", "'a b' is not a label key"),
        ("reportingController: ''", "reportingController", f"'' {NOT_A_NAME}"),
        ('reportingController: "a\\nb"', "reportingController", f"'a\\nb' {NOT_A_NAME}"),
        ('record: {directory: "a\\0"}', "record.directory", f"'a\\x00' {NOT_A_TEXT}"),
        ('tracing: {file: "a\\0"}', "tracing.file", f"'a\\x00' {NOT_A_TEXT}"),
        ("record: {maxAge: 5s}", "record.maxAge", "'5s' is not within 10s..87840h"),
        ("record: {maxAge: 87841h}", "record.maxAge", "'87841h' is not within 10s..87840h"),
        (f"record: {{maxAge: {'9' * 400}h}}", "record.maxAge",
         "99999999999999999999… with its 401 characters is too long"),
    ],
)  # fmt: skip
def test_mistakes_in_our_document(ours: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", ours + "\n")
    assert (caught.value.path, caught.value.message) == (path, message)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("", "kind", "no document of kind KubeSchedulerConfiguration"),
        (OURS, "kind", "no document of kind KubeSchedulerConfiguration"),
        ("- a\n", "", "document 1 is a list, not a mapping"),
        ("a: [", "", "is not YAML: line 2, column 1: did not find expected node content"),
        ("a: 1\na: 2\n", "", "is not YAML: line 2, column 1: the key 'a' is given twice"),
        ("1: a\n", "", "is not YAML: line 1, column 1: the key 1 is not text"),
        (HEAD + "podMaxBackoffSeconds: " + "9" * 400, "",
         "is not YAML: line 3, column 23: the number 99999999999999999999… needs more than 64 bits"),
        ("kind: {a: 1}\n", "kind",
         "{'a': 1} is neither KubeSchedulerConfiguration nor GangschedConfiguration"),
        ("kind: AgentConfiguration\n", "kind",
         "'AgentConfiguration' is neither KubeSchedulerConfiguration nor GangschedConfiguration;"
         " it is the agent's: gangsched agent --config FILE --dry-run"),
        ("kind: KubeSchedulerConfig\n", "kind",
         "'KubeSchedulerConfig' is neither KubeSchedulerConfiguration nor GangschedConfiguration;"
         " did you mean KubeSchedulerConfiguration?"),
        (HEAD.replace("/v1", "/v1beta3"), "apiVersion",
         "'kubescheduler.config.k8s.io/v1beta3' should be 'kubescheduler.config.k8s.io/v1'"
         " for KubeSchedulerConfiguration"),
        (HEAD + "---\n" + HEAD, "kind", "two documents of kind KubeSchedulerConfiguration; keep one"),
        ("x" * 1_000_001, "", "more than 1000000 characters are no configuration"),
        (HEAD + f"profiles: [{'{},' * 1001}]", "profiles", "1001 profiles, at most 1000"),
    ],
)  # fmt: skip
def test_files_that_are_no_configuration(text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="f.yaml", plugins=IN_TREE)
    assert (caught.value.path, caught.value.message) == (path, message)
    assert str(caught.value).startswith("f.yaml: ")


def test_deep_and_cyclic_yaml_is_an_error_and_not_a_crash() -> None:
    for text in ("[" * 50_000, HEAD + "profiles: &a [*a]\n", "a: &a\n  *a : 1\n"):
        with pytest.raises(ConfigError):
            parse_config(text, source="", plugins=IN_TREE)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_short_text_that_stands_for_a_long_one_is_refused(bomb: str) -> None:
    refused(bomb, lambda text: parse_config(text, source="f.yaml", plugins=IN_TREE), ConfigError, HEAD)


def test_what_aliases_repeat_is_counted_and_where_it_is_too_much_its_line_is_reported() -> None:
    text = "a: &a [1, 2]\nb: [*a, *a]\n"
    check_yaml(text, max_values=13)
    with pytest.raises(ConfigError, match=r"^line 2: with what its aliases repeat it has more than 12 "):
        check_yaml(text, max_values=12)


def test_texts_that_only_look_long_are_read() -> None:
    long = ["9" * 128, "'" + "9" * 5000 + "'", "abcdef0123" * 500, "MIIB" * 2000]
    check_yaml("".join(f"- {one}\n" for one in long))


def test_one_queue_sort_for_all_profiles() -> None:
    other = {**IN_TREE, "Fifo": PluginInfo("Fifo", frozenset({"queueSort"}), is_default=False)}
    swap = "{queueSort: {disabled: [{name: '*'}], enabled: [{name: Fifo}]}}"
    text = HEAD + f"profiles: [{{schedulerName: a}}, {{schedulerName: b, plugins: {swap}}}]"
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="", plugins=other)
    assert str(caught.value) == "profiles[1].plugins.queueSort: must be the same for all profiles"


# -- gangs without a word ----------------------------------------------------------------------------


def test_each_profile_may_treat_foreign_marks_its_own_way() -> None:
    two = "profiles: [{schedulerName: one}, {schedulerName: two}]\n"
    found = parse(two, "profiles: [{schedulerName: two, foreignMarkers: warn}]").settings.foreign_markers
    assert found == {"two": "warn"}
    found = parse(
        two, "foreignMarkers: ignore\nprofiles: [{schedulerName: one, foreignMarkers: refuse}]"
    ).settings.foreign_markers
    assert found == {"two": "ignore"}
    with pytest.raises(ConfigError, match="is not one of refuse, warn, ignore"):
        parse(two, "foreignMarkers: passOver")


def test_each_profile_may_infer_other_gangs() -> None:
    two = "profiles: [{schedulerName: one}, {schedulerName: two}]\n"
    settings = parse(
        two, "inferGangs: [JobSet]\nprofiles: [{schedulerName: two, inferGangs: [Kueue, Job]}]"
    ).settings
    assert settings.infer_gangs == {"one": ("JobSet",), "two": ("Kueue", "Job")}
    assert parse(two, "inferGangs: []").settings.infer_gangs == {"one": (), "two": ()}


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ("inferGangs: [Jobset]", "inferGangs[0]: 'Jobset' is not one of .*; did you mean JobSet"),
        ("inferGangs: [Deployment]", "inferGangs[0]: 'Deployment' is not one of Job, JobSet, "),
        (
            "profiles: [{schedulerName: gangshed, inferGangs: []}]",
            "profiles[0].schedulerName: no profile is named 'gangshed'; did you mean gangsched",
        ),
        (
            "profiles: [{schedulerName: gangsched}, {schedulerName: gangsched}]",
            "profiles[1].schedulerName: 'gangsched' is given twice",
        ),
        (
            "profiles: [{schedulerName: gangsched, inferGang: []}]",
            "profiles[0].inferGang: unknown field; did you mean inferGangs",
        ),
    ],
)
def test_a_mistake_in_what_is_inferred_says_where_and_what_would_be_right(ours: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("profiles: [{schedulerName: gangsched}]\n", f"{ours}\n")
    assert re.search(re.escape(said).replace(r"\.\*", ".*"), str(caught.value))
