"""A command's namespace: from its flags, else from the kubeconfig's context, as in kubectl.

Lives here: the flags, and reading the context's namespace. Not here: requests. A context without a namespace
means `default` for a command about one gang, and all namespaces for a command that lists. Called by the
commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

import yaml

from gangsched.command.messages import tell_note
from gangsched.errors import ConfigError
from gangsched.kube.access.files import home_kubeconfig, read_regular

_DEFAULT = "default"
# As kubectl takes them, before a slash.
_KINDS = frozenset(
    [
        *("job", "jobs", "jobset", "jobsets", "lws", "leaderworkerset", "leaderworkersets"),
        *("raycluster", "rayclusters", "mpijob", "mpijobs", "deploy", "deployment", "deployments"),
        *("rs", "replicaset", "replicasets", "sts", "statefulset", "statefulsets"),
        *("po", "pod", "pods", "podgroup", "podgroups", "gang", "gangs"),
    ]
)


def add_flag(parser: argparse.ArgumentParser, help_: str = "of a gang that is named without one") -> None:
    """Adds the flag."""
    default = "default: the kubeconfig's context's, else default"
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help=f"{help_}; {default}")


def add_gang(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command about one gang: its name, and the flag."""
    parser.add_argument(
        "gang", metavar="NAMESPACE/GANG", help="a gang, or a lone pod; -n names its namespace too"
    )
    add_flag(parser)


def add_list_flags(parser: argparse.ArgumentParser, what: str = "") -> None:
    """Adds the flags of a command that lists. what: such as "queue"."""
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="",
        help=f"only this namespace's{what and f' {what}'}; default: the kubeconfig's context's, if any",
    )
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")


def namespace_of(args: argparse.Namespace) -> str:
    """Returns the namespace of an object named without one."""
    return str(args.namespace) or context_namespace(args.kubeconfig, args.context) or _DEFAULT


def names_of(args: argparse.Namespace, name: str) -> list[tuple[str, str]]:
    """Returns the (namespace, name) pairs that a gang or a pod may have, the first to be tried first.

    job/train may be the gang train of a namespace that is called job, or, as kubectl writes it, that of the
    Job train. Raises: ConfigError.
    """
    kind, slash, last = name.partition("/")
    if not slash or "/" in last or kind.partition(".")[0].lower() not in _KINDS:
        return [full_name(args, name)]
    full = full_name(args, last)
    return [full] if args.namespace not in ("", kind) else [(kind, last), full]


def full_name(args: argparse.Namespace, name: str) -> tuple[str, str]:
    """Returns (namespace, name) of a gang or a pod. Raises: ConfigError."""
    check_text(name)
    check_text(args.namespace)
    namespace, slash, last = name.rpartition("/")
    if not last or "/" in namespace or (slash and not namespace):
        raise ConfigError(f"{name!r} is not NAMESPACE/GANG, as default/train is")
    if namespace and args.namespace not in ("", namespace):
        raise ConfigError(f"{name!r} is of another namespace than {args.namespace!r}", path="--namespace")
    return namespace or namespace_of(args), last


def listed(args: argparse.Namespace) -> str:
    """Returns the only namespace to list, "" for all; notes on stderr one that was not typed. Raises:
    ConfigError.
    """
    check_text(args.namespace)
    if args.all_namespaces:
        if args.namespace:
            raise ConfigError("-n and -A do not go together", path="--namespace")
        return ""
    if args.namespace:
        return str(args.namespace)
    found = context_namespace(args.kubeconfig, args.context)
    if found:
        tell_note(f"only of namespace {found}, which the kubeconfig's context names; -A lists all")
    return found


def check_text(name: str) -> None:
    """Rejects bytes that no address or name contains; a terminal may send any. Raises: ConfigError."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name!r} is not UTF-8 text, as names are") from None


def context_namespace(
    kubeconfig: str = "", context: str = "", *, environ: Mapping[str, str] = os.environ
) -> str:
    """Returns the context's namespace or "". Its user reports a kubeconfig that cannot be read."""
    paths = kubeconfig or environ.get("KUBECONFIG", "")
    if not paths and "KUBERNETES_SERVICE_HOST" in environ:
        return ""  # the pod's own account
    paths = paths or home_kubeconfig(environ)
    files = [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]
    documents = [found for path in files if (found := _read(path))]
    # The first of several files that states it counts, as in kubectl.
    current = context or next(
        (str(one["current-context"]) for one in documents if one.get("current-context")), ""
    )
    for document in documents:
        contexts = document.get("contexts")
        for one in contexts if isinstance(contexts, list) else ():
            if isinstance(one, dict) and one.get("name") == current and isinstance(one.get("context"), dict):
                return str(one["context"].get("namespace") or "")
    return ""


def _read(path: str) -> dict[str, Any]:
    from gangsched.reading.yaml_bounds import check_yaml  # all of config comes with it

    try:
        text = read_regular(path, "kubeconfig")
        check_yaml(text)
        found = yaml.safe_load(text)
    except (OSError, ConfigError, yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
