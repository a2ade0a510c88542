"""The configurations that a storm of reloads draws, one after the other.

Profiles come and go, plugins are switched on and off and get other arguments, queues come, go and get other
names, claims, evictions and unwinding are switched on and off. Parts of a file that need a restart
(extension.reload) never change. Called by lab.sim.runs.reloads.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.config import SchedulerConfig, Settings, parse_config
from gangsched.config.documents import KUBE_API_VERSION, KUBE_KIND, OUR_API_VERSION, OUR_KIND
from gangsched.lab.sim.objects import OURS
from gangsched.plugins import IN_TREE

OTHER = "batch"
"""The profile that comes and goes."""
_TREES = {
    "": "",
    "teams": """
queues:
- {name: a, share: 2, guaranteed: {nvidia.com/gpu: 4}, namespaces: [d]}
- {name: b, guaranteed: {nvidia.com/gpu: 2}, order: shortest, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
""",
    "teams, sorted otherwise": """
queues:
- {name: a, guaranteed: {nvidia.com/gpu: 4}, order: shortest, namespaces: [d]}
- {name: b, share: 3, guaranteed: {nvidia.com/gpu: 2}, namespaces: ["d*"]}
- {name: c, order: shortest, namespaces: ["*"]}
""",
    "limited": """
queues:
- name: ab
  limit: {nvidia.com/gpu: 6}
  queues:
  - {name: a, limit: {nvidia.com/gpu: 4}, namespaces: [d]}
  - {name: b, order: shortest, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
""",
    "other names": """
queues:
- name: all
  guaranteed: {nvidia.com/gpu: 3}
  limit: {nvidia.com/gpu: 9}
  queues:
  - {name: x, guaranteed: {nvidia.com/gpu: 3}, namespaces: [d]}
  - {name: c, share: 2, order: shortest, namespaces: ["*"], defaultWalltime: 20s}
""",
}
UNJUDGED = ("other names",)
"""Trees with queues that no checker judges."""
_NEEDS_WALLTIMES = (", order: shortest", ", defaultWalltime: 20s")
_FAIRNESS = "fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}\n"
_PROFILES = (
    f"[{{schedulerName: {OURS}}}]",
    f"[{{schedulerName: {OURS}}}, {{schedulerName: {OTHER}}}]",
    f'[{{schedulerName: {OURS}, plugins: {{score: {{disabled: [{{name: "*"}}]}}}}}}]',
)


class Drawn(msgspec.Struct, frozen=True):
    """A configuration of a storm. tree: a key of the trees; has_claims: queueing is on."""

    profiles: int
    tree: str
    bound: int | None
    mode: str
    on_overrun: str
    has_claims: bool
    allow_eviction: bool
    on_partial_bind: str
    permit_wait_s: float

    def applied(self, settings: Settings) -> Settings:
        """Returns `settings` changed to what the file states."""
        own = self.config.settings
        changed: dict[str, Any] = {
            "queueing": own.queueing,
            "queues": own.queues,
            "allow_eviction": self.allow_eviction,
            "on_partial_bind": self.on_partial_bind,
            "permit_wait_s": self.permit_wait_s,
        }
        return replace(settings, **changed)

    @property
    def config(self) -> SchedulerConfig:
        """The file, parsed."""
        return _config(self.profiles, self.tree, self._queueing)

    @property
    def _queueing(self) -> str:
        if not self.has_claims:
            return ""
        bound = "auto" if self.bound is None else self.bound
        overrun = "" if self.mode == "shadow" else f", onOverrun: {self.on_overrun}"
        return f"queueing: {{bound: {{groups: {bound}, mode: {self.mode}}}{overrun}}}\n"


def draw(rng: Random, *, is_last: bool = False) -> Drawn:
    """Draws one. is_last: the run comes to rest with it."""
    return Drawn(
        profiles=rng.randrange(len(_PROFILES)),
        tree=rng.choice(tuple(_TREES)),
        bound=rng.choice((1, 2, 3, None)),
        mode=rng.choice(("hard", "hard", "hard", "budget", "shadow")),
        on_overrun=rng.choice(("none", "yield", "evict")),
        has_claims=rng.random() < 0.8,
        allow_eviction=is_last or rng.random() < 0.7,
        on_partial_bind=rng.choice(("complete", "unwind")),
        permit_wait_s=rng.choice((3.0, 15.0)),
    )


@cache
def _config(profiles: int, tree: str, queueing: str) -> SchedulerConfig:
    """Parses each only once: a run of seeds draws thousands of them."""
    fairness, queues = _FAIRNESS if tree else "", _TREES[tree]
    if not queueing:
        for field in _NEEDS_WALLTIMES:
            queues = queues.replace(field, "")
    text = (
        f"apiVersion: {KUBE_API_VERSION}\nkind: {KUBE_KIND}\nprofiles: {_PROFILES[profiles]}\n"
        f"---\napiVersion: {OUR_API_VERSION}\nkind: {OUR_KIND}\n{queueing}{fairness}{queues}"
    )
    return parse_config(text, source="a storm", plugins=IN_TREE)
