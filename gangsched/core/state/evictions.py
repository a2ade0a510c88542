"""Evictions: asks the API server to evict or delete a pod, ever more rarely while the pod stays.

| asked | after the one before |
|---|---|
| the second to the fourth time | 2 s: a disruption budget often allows it a moment later |
| from then on | twice as long each time, at most 5 min |
| when the pod, or a disruption budget of its namespace, has changed | at once, and as from the beginning |

Whoever wants the pod gone asks as often as it likes, and what comes too soon is left out: so all reasons to
evict a pod together cost at most some 300 requests a day for it. In memory alone: after a restart the pauses
start over. Called by core.binding.group_outcome, core.device_audit and core.kept.nominations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gangsched.core.types.group import NEVER_S, PodInfo
from gangsched.model.effects import DeletePod, Effect, EvictPod

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0
_N_FIRST_PAUSES = 3
# Pods that are gone are forgotten when this many were asked for since the last look.
_MANY = 256


class _Asked(msgspec.Struct):
    """How often a pod was asked for, and when it may be asked for again."""

    n: int = 0
    again_s: float = -NEVER_S


class Evictions:
    """What was asked for, by (UID, whether as a deletion)."""

    def __init__(self, pods: Mapping[str, PodInfo], effects: list[Effect]) -> None:
        """effects: the turn's, to add to."""
        self._pods = pods
        self._effects = effects
        self._asked: dict[tuple[str, bool], _Asked] = {}
        self._n_at_look = 0

    def ask(self, info: PodInfo, now_s: float, cause_id: str, *, deletion: str | None = None) -> None:
        """Evicts the pod, or deletes it with `deletion` as the reason, unless it was asked for just now."""
        key = (info.uid, deletion is not None)
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= self._n_at_look + _MANY:
                self._asked = {one: known for one, known in self._asked.items() if one[0] in self._pods}
                self._n_at_look = len(self._asked)
            asked = self._asked[key] = _Asked()
        if now_s < asked.again_s:
            return
        asked.n += 1
        asked.again_s = now_s + min(FIRST_PAUSE_S * 2.0 ** max(asked.n - _N_FIRST_PAUSES, 0), LONGEST_PAUSE_S)
        meta = info.pod.metadata
        if deletion is None:
            self._effects.append(EvictPod(info.uid, meta.namespace, meta.name, cause_id))
        else:
            self._effects.append(DeletePod(info.uid, meta.namespace, meta.name, deletion, cause_id))

    def again_s(self, infos: Iterable[PodInfo], now_s: float, pause_s: float = FIRST_PAUSE_S) -> float:
        """When to ask for the first of these again: not before pause_s have passed."""
        waits = [self._asked.get((info.uid, False)) for info in infos]
        earliest_s = min((one.again_s if one is not None else now_s for one in waits), default=now_s)
        return max(now_s + pause_s, earliest_s)

    def n_asked(self, info: PodInfo) -> int:
        """How often its eviction was asked for since the pauses began."""
        asked = self._asked.get((info.uid, False))
        return asked.n if asked is not None else 0

    def is_asked(self, uid: str) -> bool:
        """Whether it was asked for."""
        return bool(self._asked) and ((uid, False) in self._asked or (uid, True) in self._asked)

    def forget(self, uid: str) -> None:
        """Begins with short pauses again for this pod."""
        self._asked.pop((uid, False), None)
        self._asked.pop((uid, True), None)

    def forget_in(self, namespace: str) -> Iterator[PodInfo]:
        """Does so for the pods of a namespace, and returns them."""
        for uid in dict.fromkeys(uid for uid, _ in self._asked):
            info = self._pods.get(uid)
            if info is not None and info.pod.metadata.namespace == namespace:
                self.forget(uid)
                yield info
