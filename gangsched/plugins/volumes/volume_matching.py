"""Which volumes unbound claims would get on which node: existing ones, else provisioned ones.

Read only by VolumeBinding. A node's result is computed as in kube-scheduler: claims by rising size, each
takes the smallest sufficient volume; the remaining claims need provisioning. What reservations or the gang's
siblings have chosen is passed as `given`: no other claim gets such a volume, and a pod that shares the claim
uses it too. Ties: the volume's name. Sources: kube-scheduler 1.37
`plugins/volumebinding/binder.go`; k8s.io/component-helpers `storage/volume/pv_helpers.go`
(FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import BoolArray, IntArray
from gangsched.model.storage import PersistentVolume, PersistentVolumeClaim
from gangsched.plugins.volumes.free_volumes import FreeVolumes, request_of
from gangsched.plugins.volumes.provisioning import Provision, Provisioning

SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A pod's unbound claims on one node: volumes by claim, and claims to be provisioned.

    view: what it was made from; the cache's own view always shows nodes and claims as they are now.
    """

    view: ClusterView
    volumes: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    made: tuple[PersistentVolumeClaim, ...] = ()


class Given:
    """The volumes in choices, by the UID of the claim that they were chosen for; and their names."""

    __slots__ = ("by_claim", "names")

    def __init__(self, choices: Iterable[Choice]) -> None:
        self.by_claim: dict[str, PersistentVolume] = {}
        self.names: set[str] = set()
        for choice in choices:
            self.give(choice)

    def give(self, choice: Choice) -> None:
        for claim, volume in choice.volumes:
            self.by_claim[claim.metadata.uid] = volume
            self.names.add(volume.metadata.name)


class Matching:
    """The unbound claims of one template, against one view and the volumes given so far."""

    def __init__(
        self,
        claims: Sequence[PersistentVolumeClaim],
        view: ClusterView,
        volumes: FreeVolumes,
        provisioning: Provisioning,
        given: Given,
    ) -> None:
        self._view = view
        self._taken = given.names
        self._provisioning = provisioning
        chosen = given.by_claim
        self._shared = [(one, chosen[one.metadata.uid]) for one in claims if one.metadata.uid in chosen]
        rows = [volumes.reached_by(volume, view) for _, volume in self._shared]
        self._reached = [np.isin(np.arange(view.n_rows), one) for one in rows if one is not None]
        own = [claim for claim in claims if claim.metadata.uid not in chosen]
        self._claims = sorted(
            (claim for claim in own if not _selected(claim)), key=lambda claim: request_of(claim)
        )
        self._started = [claim for claim in own if _selected(claim)]
        self._fitting = {id(claim): volumes.fitting(claim, view) for claim in self._claims}
        self._provisions: dict[int, Provision] = {}

    def answer(self) -> tuple[BoolArray, BoolArray]:
        """bool[n_rows] each: where all claims are satisfied, and where only space is missing."""
        live = self._view.live.copy()
        for reached in self._reached:
            live &= reached
        ok = live.copy()
        if self._started:
            here = [self._view.row_of(_selected(claim)) for claim in self._started]
            ok &= np.array([all(row == other for other in here) for row in range(self._view.n_rows)])
        no_space = np.zeros(self._view.n_rows, dtype=np.bool_)
        _, made = self._take(None)
        for claim in made:
            provision = self.provision(claim)
            no_space |= ok & provision.allowed & ~provision.has_space
            ok &= provision.allowed & provision.has_space
        if len(self._claims) == 1 and not self._started:
            has_volume = (self._fitting[id(self._claims[0])].n_left(self._taken) > 0) & live
            return ok | has_volume, no_space & ~has_volume
        # Nodes reached by some volume that not all nodes reach: computed one by one, but for those with fewer
        # volumes than claims.
        short = self._short()
        ok &= ~(short & self._differ())
        for row in np.flatnonzero(self._differ() & live & ~short):
            choice, no_space[row] = self.choice(int(row))
            ok[row] = choice is not None
        return ok, no_space

    def _short(self) -> BoolArray:
        """bool[n_rows]: where there are fewer volumes than claims that need an existing one, and no claim
        lacks space for a new one."""
        n_rows = self._view.n_rows
        short, lacks_space = np.zeros((2, n_rows), dtype=np.bool_)
        most: dict[int, IntArray] = {}
        need: dict[int, IntArray] = {}
        for claim in self._claims:  # the smallest first: what fits another one of the shelf fits it
            fitting, provision = self._fitting[id(claim)], self.provision(claim)
            n_fit = fitting.n_on_rows + fitting.n_everywhere
            shelf = id(fitting.shelf)
            most.setdefault(shelf, n_fit)
            need[shelf] = need.get(shelf, 0) + ~provision.allowed
            short |= ~provision.allowed & (n_fit == 0)
            lacks_space |= provision.allowed & ~provision.has_space
        for shelf, n_fit in most.items():
            short |= need[shelf] > n_fit
        return short & ~lacks_space

    def everywhere(self) -> list[tuple[PersistentVolumeClaim, PersistentVolume]]:
        """Returns the claims' volumes where only volumes exist that all nodes reach."""
        return self._take(None)[0]

    def unlike(self) -> BoolArray:
        """bool[n_rows]: where other volumes, or another known room for new ones, exist than elsewhere."""
        unlike = self._differ()
        for claim in self._take(None)[1]:
            unlike |= self.provision(claim).capacity >= 0
        return unlike

    def _differ(self) -> BoolArray:
        differ = np.zeros(self._view.n_rows, dtype=np.bool_)
        for fitting in self._fitting.values():
            differ |= fitting.n_on_rows > 0
        return differ

    def choice(self, row: int) -> tuple[Choice | None, bool]:
        """Returns the choice for one node; if None, also whether only space is missing."""
        name = self._view.name(row)
        if not all(reached[row] for reached in self._reached):
            return None, False
        if any(_selected(claim) != name for claim in self._started):
            return None, False
        found, made = self._take(row)
        for claim in made:
            provision = self.provision(claim)
            if not provision.allowed[row]:
                return None, False
            if not provision.has_space[row]:
                return None, True
        return Choice(self._view, tuple(found), tuple(made)), False

    def _take(
        self, row: int | None
    ) -> tuple[list[tuple[PersistentVolumeClaim, PersistentVolume]], list[PersistentVolumeClaim]]:
        """Returns (claims with volumes, claims to be provisioned); row None: only volumes that all nodes
        reach."""
        found = list(self._shared)
        made = list(self._started)
        used: set[str] = set()
        got: dict[int, int] = {}
        for claim in self._claims:
            fitting = self._fitting[id(claim)]
            shelf = id(fitting.shelf)
            got[shelf], volume = fitting.first(row, used, self._taken, got.get(shelf, -1))
            if volume is None:
                made.append(claim)
            else:
                used.add(volume.metadata.name)
                found.append((claim, volume))
        return found, made

    def provision(self, claim: PersistentVolumeClaim) -> Provision:
        """Returns where a new volume for it could be provisioned, cached."""
        known = self._provisions.get(id(claim))
        if known is None:
            known = self._provisions[id(claim)] = self._provisioning.provision(claim, self._view)
        return known


def _selected(claim: PersistentVolumeClaim) -> str:
    """Returns the node for which the claim's new volume is already being provisioned."""
    return (claim.metadata.annotations or {}).get(SELECTED_NODE, "")
