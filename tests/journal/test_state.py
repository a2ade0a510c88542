"""A core's state as bytes: what it refuses to write and, above all, to read.

That each state leads to the same decisions is in test_wire_replay.py; here are bytes that somebody made up.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from gangsched import config
from gangsched.config import SchedulerConfig, default_config, parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ParseError
from gangsched.journal import state
from gangsched.journal.state import Given, NotWritable, read_state, write_state
from gangsched.journal.unobserved import observer_of
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.plugins import IN_TREE, build_profiles

GIVEN = Given(None, partial(first_of), print)


def build(given: Given) -> Scheduler:
    config = default_config(IN_TREE)
    return Scheduler(build_profiles(config), config.settings, **given._asdict())


def read(body: bytes) -> None:
    read_state(body, build(GIVEN), GIVEN)


class Calls:
    """Pickles as a call."""

    def __init__(self, do: Callable[..., Any], *args: Any) -> None:
        self._what = (do, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._what


@pytest.mark.parametrize(
    "evil",
    [
        Calls(os.system, "true"),
        Calls(eval, "1"),
        Calls(getattr, "a", "upper"),
        Calls(exec, "pass"),
        Calls(np.load, "/etc/passwd"),
        Calls(Path, "/etc/passwd"),
        Calls(default_config, IN_TREE),
        Calls(Scheduler, {}, None),
        Calls(first_of, 3),
        Calls(state._struct, Scheduler, []),
        Calls(state._array, "O", (1,), b"12345678"),
        Calls(state._array, "i8", (10**12,), b"12345678"),
    ],
    ids=lambda evil: f"{evil._what[0].__module__}.{evil._what[0].__qualname__}",
)
def test_bytes_of_a_stranger_call_nothing(evil: Calls) -> None:
    with pytest.raises(ParseError):
        read(pickle.dumps({"": {"x": evil}}))


def _function(name: str) -> bytes:
    """A function of ours, as states name it."""
    return _text("gangsched.config") + _text(name) + pickle.TUPLE2 + pickle.BINPERSID


def _text(text: str) -> bytes:
    return pickle.SHORT_BINUNICODE + bytes([len(text)]) + text.encode()


_KIND = b"gangsched.config\nSchedulerConfig\n"
_CHANGED = pickle.NONE + pickle.EMPTY_DICT + _text("changed") + _text("yes") + pickle.SETITEM + pickle.TUPLE2


@pytest.mark.parametrize(
    "evil",
    [
        pickle.MARK + _function("probe") + _text("argument") + pickle.OBJ,
        pickle.MARK + _text("argument") + pickle.INST + b"gangsched.config\nProbe\n",
        pickle.GLOBAL + _KIND + _CHANGED + pickle.BUILD,
        _function("default_config") + _CHANGED + pickle.BUILD,
    ],
    ids=["OBJ calls", "INST calls", "BUILD changes a class", "BUILD changes a function"],
)
def test_what_the_writer_never_writes_neither_calls_nor_changes_our_own(
    evil: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def probe(argument: str) -> None:
        called.append(argument)

    class Probe:
        def __init__(self, argument: str) -> None:
            called.append(argument)

    for name, one in (("probe", probe), ("Probe", Probe)):
        one.__module__ = "gangsched.config"
        monkeypatch.setattr(config, name, one, raising=False)
    with pytest.raises(ParseError, match=r"is not to be called|is no value"):
        read(pickle.PROTO + b"\x05" + evil + pickle.STOP)
    assert not called
    assert not hasattr(SchedulerConfig, "changed")
    assert not hasattr(default_config, "changed")


def _key(value: bytes) -> bytes:
    """A state with this as a key, which is hashed."""
    return pickle.PROTO + b"\x05" + pickle.EMPTY_DICT + value + pickle.NONE + pickle.SETITEM + pickle.STOP


@pytest.mark.parametrize(
    "value",
    [
        pickle.EMPTY_TUPLE + (pickle.DUP + pickle.TUPLE2) * 64,
        pickle.NONE + (pickle.DUP + pickle.DUP + pickle.TUPLE3) * 64,
        pickle.EMPTY_TUPLE + pickle.TUPLE1 * 2_000_000,
    ],
)
def test_a_few_bytes_that_stand_for_endless_values_are_not_read(value: bytes) -> None:
    with pytest.raises(ParseError, match="has values within values as no state of a core has them"):
        read(_key(value))


@pytest.mark.parametrize("body", [b"", b"no pickle", b"\x80\x05.", pickle.dumps(["a list"]), b"(" * 100_000])
def test_what_is_no_state_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        read(body)


def test_a_state_of_another_core_is_refused() -> None:
    body = pickle.dumps({"/attribute 'nothing'": {}})
    with pytest.raises(ParseError, match="no state of a core"):
        read(body)


def test_a_new_core_has_a_state_and_takes_it() -> None:
    read(write_state(build(GIVEN), build))


QUEUEING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: one}, {schedulerName: two}]
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
queueing: {bound: {groups: 12, mode: hard}, defaultWalltime: 24h}
inferGangs: [Job, Kueue]
ties: roundRobin
"""


@pytest.mark.parametrize("observed", ["no", "yes", "calls"])
@pytest.mark.parametrize("text", ["", QUEUEING], ids=["default", "queueing"])
def test_cores_that_are_arranged_otherwise_have_one_too(observed: str, text: str) -> None:
    """With an observer each profile is wrapped; with queueing there are rooms more."""
    config = parse_config(text, source="", plugins=IN_TREE) if text else default_config(IN_TREE)

    def made(given: Given) -> Scheduler:
        return Scheduler(build_profiles(config), config.settings, **given._asdict())

    given = Given(observer_of(observed), partial(first_of), print)
    one, other = made(given), made(given)
    one.handle([ev.NodeAdded(make_node("n0", gpus=8)), *map(ev.KindSynced, one.kinds)], 1.0)
    pods = [make_pod("a", gpus=4), make_pod("b", gpus=4), make_pod("c", gpus=4)]
    pods = [
        replace(pod, spec=replace(pod.spec, scheduler_name=next(iter(one.shared.profiles)))) for pod in pods
    ]
    one.handle([ev.PodAdded(pod) for pod in pods], 2.0)
    assert one.schedule_next(3.0)
    read_state(write_state(one, made), other, given)
    told: list[Any] = []
    while (effects := one.schedule_next(4.0)) is not None:
        told.append(effects)
        assert other.schedule_next(4.0) == effects
    assert len(told) == 2
    other.validate()


def test_what_has_no_form_is_refused_when_it_is_written() -> None:
    one = build(GIVEN)
    one.shared.counters["x"] = lambda: None  # type: ignore[assignment]
    with pytest.raises(NotWritable, match=r"the function tests\.journal\.test_state"):
        write_state(one, build)


class Hidden:
    """A room of ours, for all that its module says."""

    __module__ = "gangsched.core.hidden"


def test_a_room_that_a_function_alone_knows_is_refused() -> None:
    """It would be found in a new core, but not what it remembers."""

    def made(given: Given) -> Scheduler:
        one = build(given)
        one.shared.extra = partial(print, Hidden())  # type: ignore[attr-defined]
        return one

    with pytest.raises(
        NotWritable, match=r"at /attribute 'shared'/attribute 'extra' keeps a Hidden to itself"
    ):
        write_state(made(GIVEN), made)


def test_values_keep_what_they_are() -> None:
    """Each kind that a core remembers; objects that are one stay one."""
    pod = Pod(ObjectMeta(name="é"))
    kept = {
        "array": np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2],
        "number": np.float64(0.1),
        "pods": [pod, pod],
        "meta": pod.metadata,
        "settings": default_config(IN_TREE).settings,
        "set": {("a", 1)},
    }
    one, other = build(GIVEN), build(GIVEN)
    one.shared.counters["x"] = kept  # type: ignore[assignment]
    read_state(write_state(one, build), other, GIVEN)
    found: Any = other.shared.counters["x"]
    np.testing.assert_array_equal(found.pop("array"), kept.pop("array"))
    assert found["pods"][0] is found["pods"][1]
    assert found["meta"] is found["pods"][0].metadata
    assert msgspec.to_builtins(found["pods"]) == msgspec.to_builtins(kept["pods"])
    assert found["settings"] == kept["settings"]
    assert found["set"] == kept["set"]
    assert repr(found["number"]) == repr(kept["number"])
