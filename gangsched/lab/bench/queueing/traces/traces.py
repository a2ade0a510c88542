"""Recorded workloads: SWF of the Parallel Workloads Archive, CSV of jobs with devices, Slurm's sacct.

The Standard Workload Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. CSV by its header:
`arrival_s, run_s, devices` with `stated_s` and `user` where known; or the pods of the published openb trace,
`num_gpu, creation_time, scheduled_time, deletion_time`.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.journal.segments import SUFFIX
from gangsched.lab.bench.queueing.traces.jobs import Job, Workload, in_order
from gangsched.lab.bench.queueing.traces.sacct import NEVER_RAN, STILL_RUNS, sacct_jobs
from gangsched.model.text.printable import clean, several

_MAX_LINE = 10_000
_MAX_LINES = 5_000_000
# Fields of SWF, from 0: submitted, run time, allocated processors, processors and time asked for, user.
_SUBMITTED, _RAN, _ALLOCATED, _ASKED, _LIMIT, _USER = 1, 3, 4, 7, 8, 11
_N_FIELDS = 12
NO_ARRIVAL = "jobs without a time of arrival"
# The date of a log, which only the format's header has. Logs without a date state 0.
_HEADER = re.compile(r"\s*;\s*UnixStartTime:\s*(\S*)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{1,11}")
_NEEDED = {
    frozenset(("arrival_s", "run_s", "devices")): "ours",
    frozenset(("num_gpu", "creation_time", "scheduled_time", "deletion_time")): "openb",
}


Read = Callable[[], Job | str]
"""A line that is still to be read: a job, or why it is none."""


_OF_A_POD = ("cpu_milli", "memory_mib")


class Trace(msgspec.Struct, frozen=True):
    """n_left_out: jobs that never ran, or request no device or more than there are."""

    workload: Workload
    n_left_out: int


def read_trace(path: str, n_jobs: int, n_devices: int) -> Trace:
    """Reads the first `n_jobs` that can run on `n_devices`. Raises: ConfigError, with file and line."""
    jobs: list[Job] = []
    n_left_out = 0
    try:
        for job in jobs_of(path):
            if isinstance(job, str) or not 1 <= job.n_devices <= n_devices or job.run_s <= 0:
                n_left_out += 1
                continue
            # Published policies count devices, wherever they are; ours is to do the same work.
            jobs.append(replace(job, pods=0, cpu_milli=0, memory_mib=0))
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
    return Trace(Workload(readable(Path(path).name), in_order(jobs), n_devices), n_left_out)


def readable(path: str) -> str:
    """A path for reports; bytes that do not decode, which JSON cannot hold, are replaced."""
    return os.fsencode(path).decode(errors="replace")


def jobs_of(
    path: str, kind: str = "", refuse: Callable[[ConfigError], None] | None = None
) -> Iterator[Job | str]:
    """Yields for each line a job, or why it is none.

    kind: swf, csv or sacct; "": by the file's name, or a journal. refuse: called with the error of a bad
    line, which is then left out. Raises: ConfigError (a bad line, or no such file), OSError.
    """
    if not kind and (Path(path).is_dir() or path.endswith(SUFFIX)):
        from gangsched.lab.bench.queueing.traces.recorded import journal_jobs

        yield from journal_jobs(path)
        return
    parse = _PARSERS.get(kind or path.rpartition(".")[2])
    if parse is None:
        os.stat(path)  # a missing file is reported first
        raise ConfigError("is neither a .swf nor a .csv file, nor a .sacct file, nor a journal", source=path)
    with Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for read in parse(path, _lines(path, file)):
            try:
                yield read()
            except ConfigError as error:
                if refuse is None:
                    raise
                refuse(error)


def _lines(path: str, file: TextIO) -> Iterator[str]:
    """Yields lines; only the beginning of one that is too long, which its reader refuses. Raises:
    ConfigError."""
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        if number > _MAX_LINES:
            raise ConfigError(f"line {number} is one too many", source=path)
        rest = line
        while len(line) > _MAX_LINE and rest and not rest.endswith("\n"):
            rest = file.readline(_MAX_LINE)
        yield line


def _check_length(path: str, number: int, line: str) -> None:
    """Raises: ConfigError."""
    if len(line) > _MAX_LINE:
        raise ConfigError(f"line {number} is longer than {_MAX_LINE} characters", source=path)


def _swf(path: str, lines: Iterable[str]) -> Iterator[Read]:
    """Reads SWF; if its header states when it began, jobs arrive at times since 1970."""
    began_s = 0.0
    for number, line in enumerate(lines, start=1):
        header = _HEADER.match(line)
        if header is not None and _DATE.fullmatch(header[1]):
            began_s = float(header[1])
        elif header is not None:
            yield partial(_bad_date, path, number, header[1])
        elif line.strip() and not line.lstrip().startswith(";"):
            yield partial(_swf_job, path, number, line, began_s)


def _bad_date(path: str, number: int, text: str) -> Job:
    """Raises: ConfigError."""
    problem = f"line {number}: UnixStartTime: {text[:40]!r} is not a number of seconds since 1970"
    raise ConfigError(problem, source=path)


def _swf_job(path: str, number: int, line: str, began_s: float) -> Job | str:
    """Raises: ConfigError."""
    _check_length(path, number, line)
    fields = line.split()
    if len(fields) < _N_FIELDS:
        n = several(len(fields), "field")
        problem = f"line {number} has {n}, a job of the Standard Workload Format has 18"
        raise ConfigError(problem, source=path)
    value = number_reader(path, number, lambda k: fields[k])
    n_devices = int(value(_ALLOCATED) if value(_ALLOCATED) > 0 else value(_ASKED))
    limit_s, submitted_s = max(value(_LIMIT), 0.0), value(_SUBMITTED)
    if submitted_s < 0.0:
        return NO_ARRIVAL
    return Job(number, began_s + submitted_s, value(_RAN), n_devices, limit_s, fields[_USER])


def _csv(path: str, lines: Iterable[str]) -> Iterator[Read]:
    rows = iter(lines)
    names = [name.strip() for name in _fields(next(rows, ""))]
    kind = next((kind for needed, kind in _NEEDED.items() if needed <= set(names)), None)
    if kind is None:
        raise ConfigError(
            f"has the columns {clean(', '.join(sorted(names)))[:400] or 'of no header'}: arrival_s, run_s and"
            " devices are needed, or num_gpu, creation_time, scheduled_time and deletion_time",
            source=path,
        )
    for number, line in enumerate(rows, start=2):
        if line.strip():
            yield partial(_csv_job, path, number, names, line, _ours if kind == "ours" else _openb)


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]), []) if len(line) <= _MAX_LINE else []


def _csv_job(
    path: str, number: int, names: Sequence[str], line: str, read: Callable[..., Job | str]
) -> Job | str:
    """Raises: ConfigError."""
    _check_length(path, number, line)
    fields = dict(zip(names, _fields(line), strict=False))
    return read(number, fields, number_reader(path, number, lambda name: fields.get(name, "")))


def _ours(number: int, fields: Mapping[str, str], value: Callable[..., float]) -> Job:
    stated_s = value("stated_s") if fields.get("stated_s", "").strip() else 0.0
    user = fields.get("user", "").strip()
    return Job(number, value("arrival_s"), value("run_s"), int(value("devices")), max(stated_s, 0.0), user)


def _openb(number: int, fields: Mapping[str, str], value: Callable[..., float]) -> Job | str:
    """Reads a row, which is a job of one pod."""
    if not fields.get("scheduled_time", "").strip():
        return NEVER_RAN
    if not fields.get("deletion_time", "").strip():
        return STILL_RUNS
    run_s = value("deletion_time") - value("scheduled_time")
    cpu, memory = (int(value(name)) if fields.get(name, "").strip() else 0 for name in _OF_A_POD)
    n_devices = int(value("num_gpu"))
    return Job(number, value("creation_time"), run_s, n_devices, pods=1, cpu_milli=cpu, memory_mib=memory)


def number_reader(path: str, line: int, field: Callable[..., str]) -> Callable[..., float]:
    """Returns a reader of fields as numbers, which raises: ConfigError."""

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


_PARSERS: Mapping[str, Callable[[str, Iterable[str]], Iterator[Read]]] = {
    "swf": _swf,
    "csv": _csv,
    "sacct": sacct_jobs,
}
