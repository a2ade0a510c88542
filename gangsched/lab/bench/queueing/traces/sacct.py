"""Jobs from Slurm's accounting: what `sacct -P` prints, with a header.

One row a job; steps, which have a dot in their ID, belong to their job. Times are without a zone, as sacct
prints them, and taken for UTC, or seconds since 1970. Devices are gres/gpu of AllocTRES, or of ReqTRES.
Source: https://slurm.schedmd.com/sacct.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from gangsched.errors import ConfigError
from gangsched.lab.bench.queueing.traces.jobs import Job
from gangsched.model.text.printable import several

STEP = "steps of jobs"
NEVER_RAN = "jobs that never started"
STILL_RUNS = "jobs that had not ended"
_NEEDED = ("JobID", "Submit", "Start", "End")
_AMOUNTS = ("AllocTRES", "ReqTRES")
_NO_TIME = ("", "Unknown", "None", "N/A")
_LAST_YEAR = 9000
_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{2})(?:\.[0-9]{1,6})?")
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGTPE]?)")
_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "E": 1024.0**4}


def sacct_jobs(path: str, lines: Iterable[str]) -> Iterator[Callable[[], Job | str]]:
    """Yields for each row a reader that returns a job or why there is none. Raises: ConfigError (header)."""
    rows = iter(lines)
    names = [name.strip() for name in next(rows, "").rstrip("\r\n").split("|")]
    missing = [name for name in _NEEDED if name not in names]
    if missing or not set(_AMOUNTS) & set(names):
        wanted = missing or [" or ".join(_AMOUNTS)]
        raise ConfigError(
            f"line 1 has no column {', '.join(wanted)}: sacct -a -P -o"
            " JobID,User,Submit,Start,End,State,AllocTRES,ReqTRES,TimelimitRaw prints what is read",
            source=path,
        )
    for number, line in enumerate(rows, start=2):
        if line.strip():
            yield partial(_job, path, number, names, line)


def _job(path: str, number: int, names: list[str], line: str) -> Job | str:
    """Reads one row. Raises: ConfigError."""
    values = line.rstrip("\r\n").split("|")
    if len(values) not in (len(names), len(names) + 1):  # -p ends each row with a bar
        problem = f"line {number} has {several(len(values), 'field')}, the header {len(names)}"
        raise ConfigError(problem, source=path)
    row = dict(zip(names, values, strict=False))
    try:
        return _read(number, row)
    except ValueError as error:
        raise ConfigError(f"line {number}: {error}", source=path) from None


def _read(number: int, row: Mapping[str, str]) -> Job | str:
    """Returns the job of a row, or why there is none. Raises: ValueError."""
    if "." in row["JobID"]:
        return STEP
    submit_s = _time_s("Submit", row["Submit"])
    start_s, end_s = _time_s("Start", row["Start"]), _time_s("End", row["End"])
    if submit_s is None:
        raise ValueError(f"field Submit: {row['Submit'][:40]!r} is not a time")
    if start_s is None:
        return NEVER_RAN
    if end_s is None:
        return STILL_RUNS
    amounts = _amounts(row.get("AllocTRES") or row.get("ReqTRES") or "")
    n_nodes = max(round(amounts.get("node", 1.0)), 1)
    n_devices = round(amounts.get("gres/gpu", 0.0) or _typed(amounts))
    n_pods = n_nodes if n_devices % n_nodes == 0 else n_devices
    return Job(
        number,
        submit_s,
        end_s - start_s,
        n_devices,
        _limit_s(row),
        row.get("User", ""),
        pods=n_pods,
        cpu_milli=round(1000 * amounts.get("cpu", 0.0)) // n_pods,
        memory_mib=round(amounts.get("mem", 0.0)) // n_pods,
    )


def _typed(amounts: Mapping[str, float]) -> float:
    """The sum over the types, where the row gives no total."""
    return sum(n for name, n in amounts.items() if name.startswith("gres/gpu:"))


def _time_s(name: str, text: str) -> float | None:
    """Unix time; None: it has not happened yet. Raises: ValueError."""
    if text in _NO_TIME:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 11:
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"field {name}: {text[:40]!r} is not a time") from None
    if not 1970 < at.year < _LAST_YEAR:
        raise ValueError(f"field {name}: {text[:40]!r} is not a time of a job")
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _amounts(text: str) -> dict[str, float]:
    """Amounts by name; memory in MiB. Raises: ValueError."""
    found = {}
    for one in text.split(",") if text else ():
        name, _, value = one.partition("=")
        amount = _AMOUNT.fullmatch(value)
        if amount is None:
            raise ValueError(f"field {' or '.join(_AMOUNTS)}: {one[:40]!r} is not a name with an amount")
        found[name] = float(amount[1]) * (_MIB[amount[2]] if name == "mem" else 1.0)
    return found


def _limit_s(row: Mapping[str, str]) -> float:
    """The limit in seconds; 0: unknown."""
    minutes = row.get("TimelimitRaw", "")
    if minutes.isascii() and minutes.isdecimal() and len(minutes) < 9:
        return 60.0 * int(minutes)
    clock = _CLOCK.fullmatch(row.get("Timelimit", ""))
    if clock is None:
        return 0.0
    days, hours, minutes_, seconds = (int(part or 0) for part in clock.groups())
    return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes_ + seconds
