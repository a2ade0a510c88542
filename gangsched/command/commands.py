"""The table of commands: their modules, found when they run, and what each is for.

A command's module has `add_arguments` and `run`. Only the requested one is imported. Those of the laboratory
(gangsched.lab) may not be installed: a cluster needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from gangsched import __version__
from gangsched.errors import ConfigError

_LAB = "gangsched.lab"
# They run until they are told to stop, and what they do is read in a log.
SERVICES = ("scheduler", "agent", "apiserver")
COMMANDS = {
    "scheduler": (
        "gangsched.command.scheduler",
        "run beside kube-scheduler and place the pods that name one of its profiles",
    ),
    "check-config": (
        "gangsched.command.check_config",
        "read a configuration file and print what it amounts to",
    ),
    "agent": (
        "gangsched.agent.command",
        "run on each node: write which devices it has, and how they are, on its Node object",
    ),
    "apiserver": (
        "gangsched.lab.apiserver.command",
        "an API server in memory with simulated nodes: a cluster to try things on",
    ),
    "counterfactual": (
        "gangsched.lab.counterfactual.command",
        "what a recorded day would have been with another configuration, more nodes, or without a gang",
    ),
    "devices": (
        "gangsched.devices.command",
        "show which devices each node has, who holds them, since when, planned or confirmed",
    ),
    "doctor": (
        "gangsched.doctor.command",
        "check an installation from outside: what is wrong with it, and the command that mends it",
    ),
    "explain": (
        "gangsched.web.commands.explain",
        "why a gang or a pod does not run, and what would cure it",
    ),
    "gangs": (
        "gangsched.web.commands.gangs",
        "every gang of every dialect: what it needs, how far it is, on how many nodes",
    ),
    "load": (
        "gangsched.load.command",
        "show how busy each node is against what it can do, and how evenly the cluster is loaded",
    ),
    "queue": (
        "gangsched.web.commands.queue",
        "what has not started yet, in the order in which it will be tried, and why",
    ),
    "queues": (
        "gangsched.web.commands.queues",
        "what each queue holds and is due: guarantees, limits, shares, and who waits",
    ),
    "replay": (
        "gangsched.journal.replay.command",
        "make the decisions of a recorded day again, and see them, one by one or as of a time",
    ),
    "import": (
        "gangsched.lab.importing.command",
        "make a journal of what another scheduler ran: Kubernetes, Slurm, SWF, CSV",
    ),
    "anonymise": (
        "gangsched.journal.anonymise.command",
        "write a recorded day under other names, with the same decisions, to hand it over",
    ),
    "story": (
        "gangsched.web.commands.story",
        "what happened to a gang, move by move, as the running scheduler remembers it",
    ),
    "top": (
        "gangsched.web.top.command",
        "the running scheduler as it changes: queue, devices, rates and latencies, like htop",
    ),
    "trace": (
        "gangsched.telemetry.showing.command",
        "draw a gang's trace: what it waited for, and where it went",
    ),
    "whatif": (
        "gangsched.whatif.command",
        "where a job would go if it were submitted now, or why not, and when; nothing is written",
    ),
    "demo": ("gangsched.lab.demo.command", "gangs on a simulated cluster, told step by step, in a minute"),
    "bench": (
        "gangsched.lab.bench.command",
        "measure against kube-scheduler on a real control plane, in one run",
    ),
}
"""By name: (module, what it is for)."""


def module_of(command: str) -> ModuleType:
    """Imports a command. Raises: ConfigError (it belongs to the laboratory, which is not installed)."""
    name, _ = COMMANDS[command]
    if name.startswith(_LAB) and find_spec(_LAB) is None:
        raise ConfigError(
            f"{command} is a command of the laboratory, which is not installed: install gangsched-lab"
            f" {__version__}, the wheel beside this one, or run it in a clone of gangsched"
        )
    return import_module(name)
