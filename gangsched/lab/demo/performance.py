"""One performance of the demo: stage, play and show together, from the first line to the summary.

Signals end it in order: what was started is stopped, and one line says so. Called by
gangsched.lab.demo.command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
import webbrowser
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskStatus

from gangsched.errors import ConfigError, GangschedError
from gangsched.lab.demo.files import Written
from gangsched.lab.demo.play import Play
from gangsched.lab.demo.shows.picture import picture
from gangsched.lab.demo.shows.show import Lines, Table
from gangsched.lab.demo.shows.summary import summary
from gangsched.lab.demo.stage import LiveStage, open_stage
from gangsched.lab.demo.story import N_GPUS, N_NODES, N_RACKS, STORY

# A terminal that is closed is a reason to tidy up, too.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The last lines of the log that are shown when something went wrong.
_LOG_LINES = 10
# All states at once: running, deleted, waiting, unschedulable.
_STILL = 8


class Options(msgspec.Struct, frozen=True):
    """How it is to be played; `no_traces` says why there are none."""

    samples: Path
    kubeconfig: Path
    log: Path
    traces: Path | None = None
    no_traces: str = ""
    port: int = 0
    speed: float = 1.0
    keep: bool = False
    open_browser: bool = False


class Performance:
    """Runs once."""

    def __init__(self, options: Options, show: Table | Lines, svg: Written | None) -> None:
        self._options = options
        self._show = show
        self._svg = svg
        self._caught = 0
        self._story_over = False

    async def run(self) -> int:
        """Plays the demo; returns the exit code. Raises: ConfigError, if it cannot be played as requested."""
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as everything:
                await everything.start(self._listen, everything.cancel_scope)
                await self._perform()
                everything.cancel_scope.cancel()
        except* (GangschedError, OSError) as errors:
            failure = _first(errors)
        if isinstance(failure, ConfigError | OSError):
            raise failure
        if failure is not None:
            self._failed(failure)
            return 1
        if self._caught and not self._story_over:
            name = signal.Signals(self._caught).name
            print(f"gangsched demo: interrupted by {name}; nothing is left running", file=sys.stderr)
            return 128 + self._caught
        return 0

    async def _listen(
        self, everything: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Ends the demo at the first signal; ignores further ones."""
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if not self._caught:
                    self._caught = number
                    everything.cancel()

    async def _perform(self) -> None:
        options = self._options
        async with open_stage(
            samples=options.samples, kubeconfig=options.kubeconfig, port=options.port, traces=options.traces
        ) as stage:
            size = f"{N_NODES} nodes of {N_GPUS} GPUs in {N_RACKS} racks"
            self._show.say(f"API server in memory at {stage.url}: {size}.")
            self._show.say(f"Watch it in a browser: {stage.dashboard}")
            self._show.say(f"Or in another terminal: {_program()} top --server {stage.server}")
            if options.open_browser:
                await anyio.to_thread.run_sync(webbrowser.open, stage.dashboard)
            play = Play(stage, self._show, speed=options.speed, clock=time.monotonic)
            with self._show:
                await play.perform(STORY)
                stage.validate()
                self._story_over = True
                if options.keep:
                    self._show.say("", *self._epilogue(play), "", *self._invitation(stage))
                    self._show.end(
                        "The story is over, the cluster goes on; Ctrl-C ends it.",
                        f"export KUBECONFIG={stage.kubeconfig}",
                        "kubectl get pods,nodes -o wide",
                    )
                    await play.watch()
        if not options.keep:
            self._show.say("", *self._epilogue(play))

    def _epilogue(self, play: Play) -> list[str]:
        options = self._options
        lines = [*summary(play.chronicle), ""]
        if options.traces is not None:
            file = shlex.quote(str(options.traces))
            lines.append(f"Traces: {_program()} trace default/learners --file {file}")
        else:
            lines.append(options.no_traces)
        if self._svg is not None:
            self._svg.write(picture(self._show.frames, still=_STILL))
            lines.append(f"Picture: {self._svg.path}")
        return lines

    def _invitation(self, stage: LiveStage) -> list[str]:
        sample = shlex.quote(str(self._options.samples / "gang-ours.yaml"))
        return [
            "It goes on until Ctrl-C. In another terminal:",
            f"  export KUBECONFIG={shlex.quote(str(stage.kubeconfig))}",
            "  kubectl get pods,nodes -o wide",
            "  kubectl describe pod notebook",
            "  kubectl get resourceclaims       # whose claims of GPUs are allocated",
            "  kubectl get events --sort-by=.lastTimestamp",
            f"  {_program()} queue --start --server {stage.server}",
            "  kubectl delete job finetune      # eight nodes become empty, and nightly starts",
            f"  kubectl apply -f {sample}",
            f"The scheduler's log is in {self._options.log}",
            "",
        ]

    def _failed(self, error: BaseException) -> None:
        print(f"gangsched demo: {error}", file=sys.stderr)
        try:
            tail = self._options.log.read_text("utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        except OSError:
            tail = []
        if tail:
            print("The end of the scheduler's log:", *tail, sep="\n  ", file=sys.stderr)


def _program() -> str:
    """How this program is called from where the user is."""
    called = Path(sys.argv[0])
    if called.name != "gangsched" or shutil.which("gangsched") == str(called):
        return "gangsched"
    return shlex.quote(os.path.relpath(called))


def _first(errors: BaseException) -> BaseException:
    """The first error of a group, however deep."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
