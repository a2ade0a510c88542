"""The story: its actions, step by step, and what must happen before the next step.

Data and pure functions: `wants` checks what was seen and returns "" when the step has happened, else what is
still missing; `shows` describes it with the numbers that were seen. gangsched.lab.demo.play acts and waits.
It fits the files of config/samples: 16 nodes of 8 GPUs, of which the first five steps leave five nodes empty,
where the sixth needs eight; those eight are what the 12th to the 15th are about. The last four are about two
more nodes, whose GPUs are given out by resource claims.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gangsched.core.explaining.reports import GroupView
from gangsched.core.types.group import GroupState
from gangsched.lab.demo.names import host_list, seconds
from gangsched.lab.demo.scene import DELETED, ENDED, RUNNING, Chronicle, devices_found, promise_of, took_s

N_NODES, N_GPUS, N_RACKS = 16, 8, 4
TOTAL_MBPS = 1250

Wants = Callable[[Chronicle], str]
Shows = Callable[[Chronicle], str]


class Apply(msgspec.Struct, frozen=True):
    """Submits a file of config/samples, or the objects of it that are named."""

    file: str
    only: tuple[str, ...] = ()

    def __str__(self) -> str:
        command = f"kubectl apply -f config/samples/{self.file}"
        return f"{command}   # {', '.join(self.only)} only" if self.only else command


class Delete(msgspec.Struct, frozen=True):
    """Deletes Jobs with their pods."""

    jobs: tuple[str, ...]

    def __str__(self) -> str:
        return f"kubectl delete job {' '.join(self.jobs)}"


class Report(msgspec.Struct, frozen=True):
    """The nodes' agents report what their links have left, of TOTAL_MBPS: little on the first `n_busy`
    nodes."""

    n_busy: int

    def left_mbps(self, number: int) -> int:
        """Mbit/s left on the links of a node, counted from 0."""
        return 300 if number < self.n_busy else 1100

    def __str__(self) -> str:
        return "gangsched agent --bandwidth   # on each node"


class Explain(msgspec.Struct, frozen=True):
    """Asks why a gang does not run."""

    group: str

    def __str__(self) -> str:
        return f"gangsched explain default/{self.group}"


Action = Apply | Delete | Report | Explain


class Step(msgspec.Struct, frozen=True):
    """`title` is shown before it, `shows` when it has happened; then people have `linger_s` to look.

    `within_s` is its deadline on the wall, wide enough for a busy machine.
    """

    title: str
    does: tuple[Action, ...]
    wants: Wants
    shows: Shows
    linger_s: float = 2.0
    within_s: float = 20.0


# -- what must happen ----------------------------------------------------------------------------------


def running(*names: str) -> Wants:
    """Each group is bound whole, and the kubelets have started all of it."""
    return lambda seen: "; ".join(text for name in names if (text := _not_yet(seen, name, RUNNING)))


def waiting(name: str, *, n_reserved: int) -> Wants:
    """All its members are reserved, none bound, and it waits in Permit."""

    def wants(seen: Chronicle) -> str:
        view = _view(seen, name)
        if view is not None and (view.n_reserved, view.n_bound) == (n_reserved, 0):
            return _not_yet(seen, name, GroupState.WAITING.value)
        return _not_yet(seen, name, f"waiting with {n_reserved} reserved")

    return wants


def refused(name: str, *, says: str) -> Wants:
    """The group holds nothing and gives this reason."""

    def wants(seen: Chronicle) -> str:
        group = seen.scene.group(name)
        if group is not None and not group.gone and says in group.why and not group.view.holds:
            return ""
        return _not_yet(seen, name, f"refused, saying {says!r}")

    return wants


def deleted(*names: str) -> Wants:
    """The last pod of each is gone."""
    return lambda seen: "; ".join(text for name in names if (text := _not_yet(seen, name, DELETED)))


def promised(name: str) -> Wants:
    """The group was promised a start; it may have started since."""

    def wants(seen: Chronicle) -> str:
        return "" if _promise(seen, name) else _not_yet(seen, name, "promised a start")

    return wants


def ran(name: str) -> Wants:
    """The group's pods were seen running; they may have ended since."""

    def wants(seen: Chronicle) -> str:
        is_seen = any(change.seen.word in (RUNNING, ENDED) for change in seen.history(name))
        return "" if is_seen else _not_yet(seen, name, RUNNING)

    return wants


def gave_back(name: str) -> Wants:
    """The group waited in Permit, and no longer holds anything."""

    def wants(seen: Chronicle) -> str:
        view = _view(seen, name)
        if view is None or not held_by(seen, name):
            return f"{name} has never held anything"
        if view.holds or view.state is GroupState.WAITING:
            return f"{name} still holds {len(view.ids)} GPUs on {host_list(view.nodes)}"
        return ""

    return wants


def inherited(heir: str, *, from_: str) -> Wants:
    """`heir` has the very devices that the other held."""

    def wants(seen: Chronicle) -> str:
        view = _view(seen, heir)
        if view is None or set(view.ids) != set(held_by(seen, from_)):
            return f"{heir} does not have the GPUs that {from_} held"
        return ""

    return wants


def offered(n: int, driver: str) -> Wants:
    """The nodes offer so many devices of the driver."""

    def wants(seen: Chronicle) -> str:
        there = sum(len(node.devices.get(driver, ())) for node in seen.scene.nodes)
        return "" if there == n else f"{there} devices of {driver} are there, it should be {n}"

    return wants


def explained() -> Wants:
    """The last answer says which devices a claim finds."""
    return lambda seen: "" if devices_found(seen.answer) else f"no devices are in the answer: {seen.answer}"


def all_of(*wishes: Wants) -> Wants:
    return lambda seen: "; ".join(text for wants in wishes if (text := wants(seen)))


def held_by(seen: Chronicle, name: str) -> tuple[str, ...]:
    """The device IDs that the group last held while it waited in Permit."""
    views = [c.seen.view for c in seen.history(name) if c.seen.view.state is GroupState.WAITING]
    return views[-1].ids if views else ()


def _promise(seen: Chronicle, name: str) -> str:
    """The last promise of its start; "" if there was none."""
    return next(
        (promise for change in reversed(seen.history(name)) if (promise := promise_of(change.seen))), ""
    )


def _view(seen: Chronicle, name: str) -> GroupView | None:
    group = seen.scene.group(name)
    return group.view if group is not None else None


def _not_yet(seen: Chronicle, name: str, word: str) -> str:
    group = seen.scene.group(name)
    if group is None:
        return f"{name} does not exist, it should be {word}"
    if group.word == word:
        return ""
    view = group.view
    counts = f"{view.n_reserved} reserved, {view.n_bound} bound, {view.n_running} running of {view.n_needed}"
    why = f": {group.why}" if group.why else ""
    return f"{name} is {group.word} ({counts}), it should be {word}{why}"


# -- the sentences -------------------------------------------------------------------------------------


def bound(name: str, text: str) -> Shows:
    """`text` with {took}, {nodes}, {n_nodes}, {racks} and {n_gpus} of a group that was bound."""

    def shows(seen: Chronicle) -> str:
        view = _view(seen, name)
        if view is None:
            return ""
        # A launcher has no GPUs and may be anywhere.
        nodes = [holding.node for holding in view.holds if holding.ids] or list(view.nodes)
        racks = dict.fromkeys(node.topology for node in seen.scene.nodes if node.name in nodes)
        return text.format(
            took=seconds(took_s(view) or 0.0),
            nodes=host_list(nodes),
            n_nodes=len(nodes),
            racks=host_list(racks),
            n_gpus=len(view.ids),
        )

    return shows


def always(text: str) -> Shows:
    return lambda seen: text


def _held(seen: Chronicle) -> str:
    view = _view(seen, "evaluate")
    if view is None or view.deadline_s is None:
        return ""
    wait_s = view.deadline_s - view.since_s
    return f"Reserved on {host_list(view.nodes)}, the last empty node, for {wait_s:.0f} s at most."


def _kept(seen: Chronicle) -> str:
    return f"To the gang: {_promise(seen, 'finetune')} The probe fits in before that, the hour does not."


def _devices(seen: Chronicle) -> str:
    """Of the answer what is most telling."""
    return f"Each claim finds: {devices_found(seen.answer)}."


STORY: tuple[Step, ...] = (
    Step(
        "A pod of its own wants one GPU. It takes the same path as a gang: a gang of one.",
        (Apply("lone-pod.yaml"),),
        running("lone"),
        bound("lone", "Bound after {took}: node and GPU in one write, on {nodes}."),
        linger_s=1.5,
    ),
    Step(
        "A training gang of 4 pods with 8 GPUs each: all four start, or none.",
        (Apply("gang-ours.yaml"),),
        running("train"),
        bound("train", "Bound whole after {took}: {n_nodes} nodes in {racks}, {n_gpus} GPUs by their IDs."),
    ),
    Step(
        "An MPI job, a launcher and 8 workers of 4 GPUs, is one gang too.",
        (Apply("gang-mpi.yaml"),),
        running("mpi"),
        bound("mpi", "All nine bound after {took}: {n_gpus} GPUs on {nodes} in {racks}."),
    ),
    Step(
        "Two gangs that start together. Only the learners exist so far.",
        (Apply("start-together.yaml", ("learners",)),),
        waiting("learners", n_reserved=2),
        always("Their GPUs are reserved and nothing is bound: they wait in Permit for the actors."),
        linger_s=2.5,
    ),
    Step(
        "Now come the actors.",
        (Apply("start-together.yaml", ("actors",)),),
        running("learners", "actors"),
        bound("actors", "Both gangs bound, {took} after the last actor came."),
    ),
    Step(
        "Pretraining wants 8 whole nodes. Five are empty.",
        (Apply("demo/pretrain.yaml"),),
        refused("pretrain", says="5 of 8 fit"),
        always("It does not fit, so it holds nothing, and every pod of it says why."),
        linger_s=2.5,
    ),
    Step(
        "Somebody deletes the training gang: four more nodes become empty.",
        (Delete(("train",)),),
        all_of(deleted("train"), running("pretrain")),
        bound("pretrain", "The freed room woke the gang that needed it: {n_nodes} nodes, {n_gpus} GPUs."),
        linger_s=2.5,
    ),
    Step(
        "Half of a pair: evaluate starts together with judge, which nobody creates.",
        (Apply("demo/evaluate.yaml"),),
        waiting("evaluate", n_reserved=2),
        _held,
        linger_s=1.0,
    ),
    Step(
        "A notebook wants a whole node. The last one is reserved.",
        (Apply("demo/notebook.yaml"),),
        refused("notebook", says="nodes are available"),
        always("It does not fit while evaluate holds what it does not use."),
        linger_s=1.0,
    ),
    Step(
        "The time in Permit runs out.",
        (),
        all_of(gave_back("evaluate"), running("notebook"), inherited("notebook", from_="evaluate")),
        always("WaitOnPermit timed out: all was given back, and the notebook has the very same GPUs."),
        linger_s=2.0,
    ),
    Step(
        "Two senders want 400 MB/s of a link each. Agents report: half of them are busy.",
        (Report(n_busy=8), Apply("measured/bandwidth.yaml")),
        running("stream"),
        bound("stream", "Bound after {took}, on {nodes}, with 1100 MB/s left; the other half have 300."),
        linger_s=1.0,
    ),
    Step(
        "Pretraining is over. A simulation takes four of its eight nodes, for 16 s at most.",
        (Delete(("evaluate", "pretrain")), Apply("demo/promised.yaml", ("simulate",))),
        all_of(deleted("evaluate", "pretrain"), running("simulate")),
        bound(
            "simulate", "It says so itself, by gangsched.io/walltime: so it is known when {nodes} are free."
        ),
        linger_s=0.5,
    ),
    Step(
        "A gang wants all eight. Four are empty.",
        (Apply("demo/promised.yaml", ("finetune",)),),
        refused("finetune", says="4 of 8 fit"),
        always("It waits for the simulation. Until then the empty nodes are there for others to use."),
        linger_s=1.0,
    ),
    Step(
        "A probe of 4 s and a job of an hour want two of the empty nodes each.",
        (Apply("demo/promised.yaml", ("probe", "nightly")),),
        all_of(promised("finetune"), ran("probe"), refused("nightly", says="kept for default/finetune")),
        _kept,
        linger_s=2.5,
    ),
    Step(
        "The simulation ends. The probe has ended long ago.",
        (),
        running("finetune"),
        bound(
            "finetune", "The promise is kept: all {n_nodes} nodes, {n_gpus} GPUs. The hour comes after it."
        ),
        linger_s=1.5,
    ),
    Step(
        "Two more nodes join: 8 H100 and 8 L40S, which pods get by resource claims.",
        (Apply("demo/claims-nodes.yaml"),),
        offered(16, "gpu.nvidia.com"),
        always(
            "Dynamic Resource Allocation: ResourceSlices list the GPUs, a DeviceClass is how to ask for one."
        ),
        linger_s=1.5,
    ),
    Step(
        "A gang of 4 pods. Each has a claim for one H100, made from a template.",
        (Apply("gang-claims.yaml"),),
        running("rollout"),
        bound(
            "rollout",
            "First all four claims were reserved, then the pods bound: {n_gpus} GPUs of {nodes}.",
        ),
    ),
    Step(
        "The next gang wants six H100 by claims. Four are free.",
        (Apply("demo/claims-more.yaml"),),
        refused("sweep", says="4 of 6 fit"),
        always("So none of its claims is written, and the four stay free for others."),
        linger_s=1.0,
    ),
    Step(
        "Why does it wait?",
        (Explain("sweep"),),
        explained(),
        _devices,
        linger_s=4.0,
    ),
)
