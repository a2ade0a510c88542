"""A pod's annotations for the simulation, read into a `Script`.

Lives here: the keys, their parsing and defaults. Not here: acting on them (kubelets.py, node_agent.py). The
keys are listed for users in the package's docstring.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from random import Random

import msgspec

from gangsched.errors import ParseError

PREFIX = "simulated.gangsched.io/"
START_KEY = PREFIX + "start-seconds"
RUN_KEY = PREFIX + "run-seconds"
STOP_KEY = PREFIX + "stop-seconds"
EXIT_KEY = PREFIX + "exit-code"
KUBELET_KEY = PREFIX + "kubelet"
KILLED_KEY = PREFIX + "killed"
UNHEALTHY_KEY = PREFIX + "unhealthy-devices"
VANISHED_KEY = PREFIX + "vanished-devices"

NO_KUBELET = "none"
FOREVER = "forever"
# For a pod that should end but does not state when; long enough to watch it.
DEFAULT_RUN_S = 30.0
_START_S = (0.4, 1.2)
_STOP_S = (0.2, 0.8)
_MAX_S = 10 * 365 * 86400.0

_SLEEP = re.compile(r"\bsleep\s+(infinity|\d+(?:\.\d+)?)([smhd]?)\b")
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Script(msgspec.Struct, frozen=True):
    """The life of one pod's containers; `run_s` is infinite if they never end by themselves."""

    start_s: float
    run_s: float
    stop_s: float
    exit_code: int


def script_of(
    annotations: Mapping[str, str],
    *,
    restart_policy: str,
    commands: Iterable[Iterable[str]],
    rng: Random,
) -> Script:
    """Returns how long a pod's containers start, run and stop, and their exit code.

    `commands`: the containers' commands with their arguments; without an annotation, a container that sleeps
    runs for as long as it sleeps. Raises: ParseError naming the annotation.
    """
    start_s = _seconds(annotations, START_KEY)
    run_s = _seconds(annotations, RUN_KEY)
    stop_s = _seconds(annotations, STOP_KEY)
    # Always drawn, so that one pod's annotation does not change the numbers drawn for other pods.
    drawn_start_s, drawn_stop_s = rng.uniform(*_START_S), rng.uniform(*_STOP_S)
    if run_s is None:
        run_s = _run_by_command(commands, restart_policy)
    return Script(
        start_s=drawn_start_s if start_s is None else start_s,
        run_s=run_s,
        stop_s=drawn_stop_s if stop_s is None else stop_s,
        exit_code=_exit_code(annotations),
    )


def listed(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Splits a comma-separated annotation into its parts, without empty ones."""
    return tuple(part for part in (each.strip() for each in annotations.get(key, "").split(",")) if part)


def is_true(annotations: Mapping[str, str], key: str) -> bool:
    """Whether it is present and not false: `kubectl annotate node n key=true`, also `key=`."""
    return key in annotations and annotations[key].strip().lower() not in ("false", "0", "no")


def _run_by_command(commands: Iterable[Iterable[str]], restart_policy: str) -> float:
    found = [seconds for command in commands if (seconds := _slept_s(" ".join(command))) is not None]
    if found:
        return max(found)
    return math.inf if restart_policy == "Always" else DEFAULT_RUN_S


def _slept_s(command: str) -> float | None:
    slept = [
        math.inf if number == "infinity" else float(number) * _UNIT_S[unit]
        for number, unit in _SLEEP.findall(command)
    ]
    return sum(slept) if slept else None


def _seconds(annotations: Mapping[str, str], key: str) -> float | None:
    text = annotations.get(key)
    if text is None:
        return None
    if key == RUN_KEY and text.strip() == FOREVER:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MAX_S:
        also = f' or "{FOREVER}"' if key == RUN_KEY else ""
        raise ParseError(f'{text[:40]!r} is not a number of seconds; examples: "30", "0.5"{also}', field=key)
    return seconds


def _exit_code(annotations: Mapping[str, str]) -> int:
    text = annotations.get(EXIT_KEY, "0").strip()
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ParseError(f"{text[:40]!r} is not an exit code; it is 0 to 255", field=EXIT_KEY)
    return int(text)
