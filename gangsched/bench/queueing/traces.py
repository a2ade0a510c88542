"""Recorded workloads: SWF files of the Parallel Workloads Archive, and CSV files of jobs with devices.

The Standard Workload Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. CSV by its header:
`arrival_s, run_s, devices` with `stated_s` and `user` where known; or the pods of the published openb trace,
`num_gpu, creation_time, scheduled_time, deletion_time`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from gangsched.bench.queueing.jobs import Job, Workload, in_order
from gangsched.errors import ConfigError

_MAX_LINE = 10_000
_MAX_LINES = 5_000_000
# Fields of SWF, from 0: submitted, run time, allocated processors, processors and time asked for, user.
_SUBMITTED, _RAN, _ALLOCATED, _ASKED, _LIMIT, _USER = 1, 3, 4, 7, 8, 11
_N_FIELDS = 12
_NEEDED = {
    frozenset(("arrival_s", "run_s", "devices")): "ours",
    frozenset(("num_gpu", "creation_time", "scheduled_time", "deletion_time")): "openb",
}


class Trace(msgspec.Struct, frozen=True):
    """n_left_out: jobs that never ran, or request no device or more than there are."""

    workload: Workload
    n_left_out: int


def read_trace(path: str, n_jobs: int, n_devices: int) -> Trace:
    """The first `n_jobs` that can run on `n_devices`. Raises: ConfigError, with file and line."""
    parse = _swf if path.endswith(".swf") else _csv if path.endswith(".csv") else None
    if parse is None:
        raise ConfigError("is neither a .swf nor a .csv file", source=path)
    jobs: list[Job] = []
    n_left_out = 0
    try:
        with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
            for job in parse(path, _lines(path, file)):
                if job is None or not 1 <= job.n_devices <= n_devices or job.run_s <= 0:
                    n_left_out += 1
                    continue
                jobs.append(job)
                if len(jobs) == n_jobs:
                    break
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None
    if len(jobs) < 2 or jobs[0].arrival_s == jobs[-1].arrival_s:
        raise ConfigError(
            f"has {len(jobs)} jobs for a cluster of {n_devices} devices ({n_left_out} left out): at least two"
            " that arrive at different times are needed",
            source=path,
        )
    return Trace(Workload(Path(path).name, in_order(jobs), n_devices), n_left_out)


def _lines(path: str, file: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        if len(line) > _MAX_LINE or number > _MAX_LINES:
            what = f"longer than {_MAX_LINE} characters" if len(line) > _MAX_LINE else "one too many"
            raise ConfigError(f"line {number} is {what}", source=path)
        yield line


def _swf(path: str, lines: Iterable[str]) -> Iterator[Job | None]:
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) < _N_FIELDS:
            raise ConfigError(
                f"line {number} has {len(fields)} fields, a job of the Standard Workload Format has 18",
                source=path,
            )
        value = _reader(path, number, lambda k, fields=fields: fields[k])
        n_devices = int(value(_ALLOCATED) if value(_ALLOCATED) > 0 else value(_ASKED))
        limit_s = max(value(_LIMIT), 0.0)
        yield Job(number, value(_SUBMITTED), value(_RAN), n_devices, limit_s, fields[_USER])


def _csv(path: str, lines: Iterable[str]) -> Iterator[Job | None]:
    rows = csv.DictReader(lines)
    columns = {name.strip() for name in rows.fieldnames or ()}
    kind = next((kind for needed, kind in _NEEDED.items() if needed <= columns), None)
    if kind is None:
        raise ConfigError(
            f"has the columns {', '.join(sorted(columns)) or 'of no header'}: arrival_s, run_s and devices"
            " are needed, or num_gpu, creation_time, scheduled_time and deletion_time",
            source=path,
        )
    for row in rows:
        fields = {str(name).strip(): text for name, text in row.items() if isinstance(text, str)}
        number = rows.line_num
        value = _reader(path, number, lambda name, fields=fields: fields.get(name, ""))
        yield _ours(number, fields, value) if kind == "ours" else _openb(number, fields, value)


def _ours(number: int, fields: Mapping[str, str], value: Callable[..., float]) -> Job:
    stated_s = value("stated_s") if fields.get("stated_s", "").strip() else 0.0
    user = fields.get("user", "").strip()
    return Job(number, value("arrival_s"), value("run_s"), int(value("devices")), max(stated_s, 0.0), user)


def _openb(number: int, fields: Mapping[str, str], value: Callable[..., float]) -> Job | None:
    """None: it was never scheduled, or never ended."""
    if not fields["scheduled_time"].strip() or not fields["deletion_time"].strip():
        return None
    run_s = value("deletion_time") - value("scheduled_time")
    return Job(number, value("creation_time"), run_s, int(value("num_gpu")))


def _reader(path: str, line: int, field: Callable[..., str]) -> Callable[..., float]:
    def value(key: int | str) -> float:
        text = field(key)
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not abs(found) < 1e12:
            column = key + 1 if isinstance(key, int) else key
            raise ConfigError(f"line {line}: field {column}: {text[:40]!r} is not a number", source=path)
        return found

    return value
