"""The agent's configuration: what it comes to, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsched.agent.reporter import WRITE_APART_S
from gangsched.agent.settings import (
    REGISTER_S,
    AgentDocument,
    AgentFlags,
    AgentSettings,
    NvmlDocument,
    default_settings,
    parse_parts,
    parse_settings,
)
from gangsched.agent.sources.files import FileSource
from gangsched.agent.sources.nvml import NvmlSource
from gangsched.agent.sources.pod_resources import PodResourcesSource
from gangsched.agent.sources.registers import HAMI, VOLCANO
from gangsched.errors import ConfigError

REPO = Path(__file__).parents[2]
HEAD = "apiVersion: gangsched.io/v1\nkind: AgentConfiguration\n"
ENV = {"NODE_NAME": "n1"}
NO_FLAGS = AgentFlags()


def read(text: str, flags: AgentFlags = NO_FLAGS, environ: dict[str, str] = ENV) -> AgentSettings:
    return parse_settings(HEAD + text, source="agent.yaml", flags=flags, environ=environ)


def test_without_a_file_gpus_are_looked_for_on_the_node_that_the_environment_names() -> None:
    assert default_settings(AgentFlags(), ENV) == AgentSettings("n1", 60.0, (), NvmlDocument(), ())


def test_the_sample_says_the_defaults() -> None:
    text = (REPO / "config" / "agent.yaml").read_text()
    found = parse_settings(text, source="config/agent.yaml", flags=AgentFlags(), environ=ENV)
    assert found == AgentSettings("n1", AgentDocument().heartbeat_seconds, (), NvmlDocument(), ())


def test_a_flag_goes_before_the_file_and_the_file_before_the_environment() -> None:
    text = "nodeName: n2\ndevices: [/a]\nnvml: {mode: off}\nheartbeatSeconds: 30\nregisters: [hami]\n"
    assert read(text) == AgentSettings("n2", 3.0, ("/a",), NvmlDocument(mode="off"), (HAMI,))
    flags = AgentFlags(
        node_name="n3", devices=("/b", "/c"), nvml="on", heartbeat_s=2.0, registers=("hami", "volcano")
    )
    assert read(text, flags) == AgentSettings(
        "n3", 2.0, ("/b", "/c"), NvmlDocument(mode="on"), (HAMI, VOLCANO)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodename: x\n", "agent.yaml: nodename: unknown field; did you mean nodeName?"),
        ("nvml: {mode: maybe}\n", "agent.yaml: nvml.mode: 'maybe' is not one of auto, on, off"),
        ("nvml: {resource: gpu}\n", "agent.yaml: nvml.resource: 'gpu' is not an extended resource"),
        ("nvml: {ignoreXids: [x]}\n", "agent.yaml: nvml.ignoreXids[0]: 'x' is not a whole number"),
        ("devices: /a\n", "agent.yaml: devices: '/a' is not a list"),
        ("devices: [/a, /a]\n", "agent.yaml: devices: '/a' is given twice"),
        ("devices: ['']\n", "agent.yaml: devices: an empty path is none"),
        ("heartbeatSeconds: 0\n", "agent.yaml: heartbeatSeconds: 0 is not within 1 to 3600"),
        ("heartbeatSeconds: .nan\n", "agent.yaml: heartbeatSeconds: nan is not within"),
        ("registers: [hamy]\n", "'hamy' is not one of hami, volcano; did you mean hami?"),
        ("nodeName: Node_1\n", "agent.yaml: nodeName: 'Node_1' is not a node name"),
        ("plugins: [{resource: fpga}]\n", "plugins[0].resource: 'fpga' is not an extended resource"),
        ("nvml: {resource: nvidia.com/g p u}\n", "nvml.resource: 'nvidia.com/g p u' is not an extended"),
        ("plugins: [{resource: Example.com/x}]\n", "plugins[0].resource: 'Example.com/x' is not an extended"),
        ("kubelet: {resources: [a/b/c]}\n", "kubelet.resources[0]: 'a/b/c' is not an extended resource"),
        ("plugins: [{resource: a/b}, {resource: a/b}]\n", "plugins[0].resource: 'a/b' is given twice"),
        ("plugins: [{resource: a/b, handOff: magic}]\n", "not one of device-plugin, env, count"),
        (
            "plugins: [{resource: a/b, each: {deviceFiles: [{host: /tmp/x}]}}]\n",
            "plugins[0].each.deviceFiles[0].host: '/tmp/x' is not a path from /dev/ on",
        ),
        (
            "plugins: [{resource: a/b, each: {deviceFiles: [{host: /dev/x, permissions: rx}]}}]\n",
            "plugins[0].each.deviceFiles[0].permissions: 'rx' is not of r, w and m",
        ),
        ("plugins: [{resource: a/b, all: {cdi: ['a/b={id}']}}]\n", "{id} stands for nothing"),
        (
            "plugins: [{resource: a/b, each: {cdi: [b]}}]\n",
            "'b' is not a CDI name such as nvidia.com/gpu={id}",
        ),
        ("plugins: [{resource: a/b, env: {A-B: x}}]\n", "'A-B' is not the name of a variable"),
        ("plugins: [{resource: a/b, handOff: env, env: {A: x}}]\n", "kubelet's choice means nothing"),
        ("plugins: [{resource: a/b}]\nkubelet: {resources: [a/b]}\n", "is offered by the agent itself"),
        ("kubelet: {podResources: x.sock}\n", "kubelet.podResources: 'x.sock' is not a path from / on"),
        ("---\n" + HEAD, "has 2 documents, expected one"),
        ("kind: x\n", "is not YAML: line 3, column 1: the key 'kind' is given twice"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in str(caught.value)


def parts(*texts: str) -> AgentSettings:
    files = [(f"{i}.yaml", HEAD + text) for i, text in enumerate(texts)]
    return parse_parts(files, flags=AgentFlags(), environ=ENV)


def test_several_files_are_one_configuration() -> None:
    whole = "devices: [/a]\nload: {enabled: true}\nplugins: [{resource: a/b}]\n"
    assert parts(*whole.splitlines()) == read(whole)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ("load: {enabled: true}\n", "load: {}\n"),
            "1.yaml: load: is in 0.yaml too; a section",
        ),
        (("devices: [/a]\n", "nodename: x\n"), "1.yaml: nodename: unknown field"),
        (("devices: [/a]\n", "plugins: [{resource: fpga}]\n"), "1.yaml: plugins[0].resource: 'fpga' is not"),
        (("plugins: [{resource: a/b}]\n", "kubelet: {resources: [a/b]}\n"), "is offered by the agent itself"),
        (("devices: [/a]\n", "nodeName: UP\n"), "1.yaml: nodeName: 'UP' is not a node name"),
    ],
)
def test_a_mistake_in_one_of_several_files_names_it(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parts(*texts)
    assert said in str(caught.value)


def test_another_kind_of_document_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind: 'AgentConfig' should be 'AgentConfiguration'"):
        parse_settings("kind: AgentConfig\n", source="a.yaml", flags=AgentFlags(), environ=ENV)
    with pytest.raises(ConfigError, match=r"apiVersion: None should be 'gangsched\.io/v1'"):
        parse_settings("kind: AgentConfiguration\n", source="a.yaml", flags=AgentFlags(), environ=ENV)


def test_a_mistake_in_a_flag_is_the_flags() -> None:
    with pytest.raises(ConfigError, match=r"^--node-name: 'UP' is not a node name"):
        read("", AgentFlags(node_name="UP"))
    with pytest.raises(ConfigError, match=r"^--heartbeat: 0.5 is not within"):
        read("", AgentFlags(heartbeat_s=0.5))
    with pytest.raises(ConfigError, match=r"^NODE_NAME: 'UP'"):
        default_settings(AgentFlags(), {"NODE_NAME": "UP"})


def test_every_source_is_looked_at_so_often_that_a_failure_is_on_the_node_within_five_seconds() -> None:
    """Pauses, and the one between two writes of a device that flickers; what is left is for the requests."""
    periods_s = (FileSource.period_s, NvmlSource.period_s, PodResourcesSource.period_s, REGISTER_S * 1.2)
    assert max(periods_s) + WRITE_APART_S < 5.0


def test_an_agent_must_know_its_node() -> None:
    with pytest.raises(ConfigError, match="which node is this"):
        default_settings(AgentFlags(), {})
