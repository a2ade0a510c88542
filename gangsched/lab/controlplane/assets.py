"""Where the servers' binaries are: a folder of the user's, or the cache that build.py fills.

What does not live here: building them (build.py) and running them (processes.py), which both call this.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangsched.errors import ConfigError

KUBERNETES_VERSION = "v1.37.1"
JAEGER_VERSION = "v1.62.0"
HELM_VERSION = "v4.3.1"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
BUILD_COMMAND = "make controlplane"
REQUIRED = ("etcd", "kube-apiserver", "kubectl")
"""The binaries that KUBEBUILDER_ASSETS promises; such a folder may lack the others of ALL."""
ALL = (*REQUIRED, "kube-scheduler", "kube-controller-manager")

_TESTS = Path(__file__).resolve().parents[3] / "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Go module whose tools tests run: pinned in `directory`, built into a folder of the cache.

    `required` are those of its binaries without which nothing is run.
    """

    name: str
    version: str
    directory: Path
    required: tuple[str, ...]


CONTROL_PLANE = Module(
    name="controlplane", version=KUBERNETES_VERSION, directory=_TESTS / "controlplane", required=REQUIRED
)
JAEGER = Module(name="jaeger", version=JAEGER_VERSION, directory=_TESTS / "jaeger", required=("jaeger",))
"""Its binary is also looked for in KUBEBUILDER_ASSETS, if set."""
HELM = Module(name="helm", version=HELM_VERSION, directory=_TESTS / "helm", required=("helm",))
"""Its binary is also looked for in KUBEBUILDER_ASSETS, if set."""
CEL = Module(
    name="cel", version=KUBERNETES_VERSION, directory=_TESTS / "model/cel/oracle", required=("cel-oracle",)
)
"""Its binary is also looked for in KUBEBUILDER_ASSETS, if set."""
DRA = Module(
    name="dra",
    version=KUBERNETES_VERSION,
    directory=_TESTS / "resource_claims/oracle",
    required=("dra-oracle",),
)
"""Its binary is also looked for in KUBEBUILDER_ASSETS, if set."""
NODE = Module(name="node", version=KUBERNETES_VERSION, directory=_TESTS / "node", required=("kubelet",))
"""Its binary is also looked for in KUBEBUILDER_ASSETS, if set."""


class MissingAssets(ConfigError):
    """Binaries are missing; the message ends with the command that brings them."""

    def __init__(self, names: Iterable[str], *, folder: Path, remedy: str) -> None:
        self.names = tuple(names)
        self.folder = folder
        self.remedy = remedy
        super().__init__(f"no {', '.join(self.names)} in {folder}; {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """A folder with at least the binaries that its module requires."""

    folder: Path

    def path(self, name: str) -> Path:
        """The binary of that name; raises MissingAssets where this folder has none."""
        binary = self.folder / name
        if not is_executable(binary):
            raise MissingAssets([name], folder=self.folder, remedy=_remedy(_is_users(self.folder)))
        return binary


def is_executable(path: Path) -> bool:
    """Whether there is an executable regular file at the path."""
    return path.is_file() and os.access(path, os.X_OK)


def users_folder(env: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that KUBEBUILDER_ASSETS names, whether it exists or not."""
    named = env.get(ASSETS_VARIABLE, "").strip()
    return Path(named).expanduser() if named else None


def cache_folder(env: Mapping[str, str] = os.environ, module: Module = CONTROL_PLANE) -> Path:
    """The folder that build.py fills for this module's go.mod and sources; other ones get another folder.

    Raises: ConfigError where this installation does not come with the Go module.
    """
    try:
        pinned = (module.directory / "go.mod").read_bytes()
        sources = [path.read_bytes() for path in sorted(module.directory.glob("*.go"))]
    except OSError:
        raise ConfigError(
            f"{module.directory / 'go.mod'} is not there, so nothing can be built: run from gangsched's"
            f" source tree, or set {ASSETS_VARIABLE} to a folder with {', '.join(module.required)}"
        ) from None
    root = env.get("XDG_CACHE_HOME", "").strip()
    base = Path(root) if root else Path.home() / ".cache"
    digest = hashlib.sha256(b"".join((pinned, *sources))).hexdigest()[:12]
    return base / "gangsched" / module.name / f"{module.version}-{digest}"


def find(env: Mapping[str, str] = os.environ, module: Module = CONTROL_PLANE) -> Assets:
    """The folder to run from: the user's where named (and then no other), else the cache.

    Raises: MissingAssets, ConfigError.
    """
    users = users_folder(env)
    folder = users if users is not None else cache_folder(env, module)
    missing = [name for name in module.required if not is_executable(folder / name)]
    if missing:
        raise MissingAssets(missing, folder=folder, remedy=_remedy(users is not None))
    return Assets(folder=folder)


def _is_users(folder: Path) -> bool:
    return folder == users_folder()


def _remedy(users: bool) -> str:
    if users:
        return f"put them there, or unset {ASSETS_VARIABLE} and run `{BUILD_COMMAND}`"
    return f"`{BUILD_COMMAND}` builds them"
