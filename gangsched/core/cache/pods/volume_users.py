"""VolumeUsers: which pods on which nodes use volumes that affect where other pods may run.

Kept by core.cache.cache for pods with such volumes, at no cost for other pods; read through the view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.storage import PersistentVolumeClaim

Claim = tuple[str, str]
"""(namespace, name)."""


class VolumeUsers:
    """by_row: row -> UID -> template; claims: number of pods on nodes that use a claim."""

    def __init__(self) -> None:
        self.by_row: dict[int, dict[str, PodTemplate]] = {}
        self.claims: dict[Claim, int] = {}

    def enter(self, info: PodInfo) -> None:
        """Counts the pod on its row."""
        self.by_row.setdefault(info.row, {})[info.uid] = info.template
        for claim in claims_of(info.template):
            self.claims[claim] = self.claims.get(claim, 0) + 1

    def leave(self, info: PodInfo) -> None:
        """Stops counting the pod on its row."""
        on_row = self.by_row[info.row]
        template = on_row.pop(info.uid)
        if not on_row:
            del self.by_row[info.row]
        for claim in claims_of(template):
            self.claims[claim] -= 1
            if not self.claims[claim]:
                del self.claims[claim]

    def after(
        self, placed: Iterable[tuple[int, PodTemplate, int]], gone: Collection[str]
    ) -> dict[int, list[PodTemplate]]:
        """Returns them by row, without the pods in `gone`, and with (row, template, count) of `placed`."""
        users = {
            row: [template for uid, template in on_row.items() if uid not in gone]
            for row, on_row in self.by_row.items()
        }
        for row, template, count in placed:
            if template.volumes:
                users.setdefault(row, []).extend([template] * count)
        return users

    def recount(self, users: Iterable[PodInfo]) -> Iterator[str]:
        """Yields differences from a fresh count of these pods, which are all that use volumes on a node; in
        words, for core.turns.invariants."""
        fresh = VolumeUsers()
        for info in users:
            fresh.enter(info)
        if fresh.by_row != self.by_row or fresh.claims != self.claims:
            yield f"volumes are used as {self.claims}, counted anew as {fresh.claims}"


def claims_of(template: PodTemplate) -> Iterator[Claim]:
    """Yields the claims that pods of the template use, including those made for a single pod."""
    for volume in template.volumes:
        if volume.persistent_volume_claim is not None:
            yield template.namespace, volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield template.namespace, f"{template.pod.metadata.name}-{volume.name}"


def claims_for_one_pod(
    template: PodTemplate, claims: Mapping[Claim, PersistentVolumeClaim]
) -> Iterator[Claim]:
    """Yields those claims that, by the API server, only one pod in the whole cluster may use."""
    for key in claims_of(template):
        claim = claims.get(key)
        if claim is not None and claim.is_for_one_pod:
            yield key
