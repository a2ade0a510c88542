"""Whether a pod's claims of devices can be prepared on its node: its kubelet's question, and its drivers'.

Lives here: the refusals in kubelet's words, and which claim holds which device of this cluster. The kubelet
looks at the claim alone; that a device is on another node, or prepared for another claim, is for its driver
to see, and a simulated one does. Not here: trying again (kubelets.py).
Source: kubernetes pkg/kubelet/cm/dra/manager.go (prepareResources), read in v1.37.
"""

from __future__ import annotations

from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.claims.claim_view import ClaimView, NotYet, claim_name, claim_of
from gangsched.lab.apiserver.simulated.nodes.references import Missing
from gangsched.lab.apiserver.simulated.view import PodClaim, PodView

REASON = "FailedPrepareDynamicResources"
_GROUP = "resource.k8s.io"

DeviceKey = tuple[str, str, str, str]
"""Driver, pool, device and share: the same device again if it is shared."""


class _Refused(Exception):
    """Why a claim cannot be prepared; `mismatch` is set if devices were allocated wrongly."""

    def __init__(self, why: str, mismatch: str = "") -> None:
        self.mismatch = mismatch
        super().__init__(why)


class PreparedClaims:
    """The claims that are prepared, each for the pods that use it, and who holds which device."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._claims = api.resources.get(f"resourceclaims.{_GROUP}")
        self._slices = api.resources.get(f"resourceslices.{_GROUP}")
        self._users: dict[str, dict[str, None]] = {}
        self._of_pod: dict[str, list[str]] = {}
        self._devices: dict[str, list[DeviceKey]] = {}
        self._holders: dict[DeviceKey, tuple[str, str]] = {}

    def prepare(self, pod: PodView, node: str) -> Missing | None:
        """Prepares all claims of the pod, or returns why one cannot be; may be called again."""
        try:
            claims = [self._checked(pod, entry) for entry in _entries(pod)]
            for claim in claims:
                if claim is not None and claim.uid not in self._users:
                    self._check_devices(claim, node)
        except _Refused as refused:
            why = f"Failed to prepare dynamic resources: prepare dynamic resources: {refused}"
            return Missing(REASON, why, mismatch=refused.mismatch)
        for claim in claims:
            if claim is not None:
                self._hold(claim, pod)
        return None

    def release(self, uid: str) -> None:
        """Unprepares the claims that no other pod uses; no error if the pod has none."""
        for claim in self._of_pod.pop(uid, ()):
            users = self._users[claim]
            users.pop(uid, None)
            if not users:
                del self._users[claim]
                for device in self._devices.pop(claim):
                    self._holders.pop(device, None)

    def _checked(self, pod: PodView, entry: PodClaim) -> ClaimView | None:
        """Returns the entry's claim, None if it needs none. Raises: _Refused."""
        try:
            name = claim_name(pod, entry)
        except NotYet:
            raise _Refused(f'pod "{pod.key}": ResourceClaim not created yet') from None
        if name is None:
            return None
        item = self._api.find(self._claims, pod.namespace, name)
        if item is None:
            raise _Refused(f'fetch ResourceClaim {name}: resourceclaims.{_GROUP} "{name}" not found')
        claim = claim_of(item)
        if entry.resource_claim_template_name is not None and not claim.is_for(pod):
            whose = f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key}"
            raise _Refused(f"{whose} (Pod is not owner)")
        if not claim.is_reserved_for(pod):
            who = f"pod {pod.name} ({pod.uid})"
            raise _Refused(f"{who} is not allowed to use ResourceClaim {name} ({claim.uid})")
        if not claim.is_allocated:
            raise _Refused(f"ResourceClaim {name}: not allocated")
        return claim

    def _check_devices(self, claim: ClaimView, node: str) -> None:
        """Raises: _Refused."""
        for driver, pool, device, share in claim.devices:
            shown = f"device {driver}/{pool}/{device}"
            holder = self._holders.get((driver, pool, device, share))
            wrong = ""
            if holder is not None and holder[0] != claim.uid:
                wrong = f"{shown} is prepared for ResourceClaim {holder[1]}"
            elif (elsewhere := self._elsewhere(driver, pool, device, node)) is not None:
                wrong = f"{shown} is on node {elsewhere}, not on {node}"
            if wrong:
                why = f"NodePrepareResources failed for ResourceClaim {claim.name}: {wrong}"
                raise _Refused(why, f"ResourceClaim {claim.name}: {wrong}")

    def _elsewhere(self, driver: str, pool: str, device: str, node: str) -> str | None:
        """The one node that has the device, if that is another; None if it is this one or is not known."""
        found: str | None = None
        for item in self._api.registry.list(self._slices):
            if item.fields.get("spec.driver") != driver or item.fields.get("spec.pool.name") != pool:
                continue
            spec = item.decode()["spec"]
            if any(each.get("name") == device for each in spec.get("devices") or ()):
                where = spec.get("nodeName")
                if where is None or where == node:
                    return None
                found = where
        return found

    def _hold(self, claim: ClaimView, pod: PodView) -> None:
        key = f"{claim.namespace}/{claim.name}"
        if claim.uid not in self._users:
            devices = self._devices[claim.uid] = claim.devices
            self._holders.update(dict.fromkeys(devices, (claim.uid, key)))
        users = self._users.setdefault(claim.uid, {})
        if pod.uid not in users:
            users[pod.uid] = None
            self._of_pod.setdefault(pod.uid, []).append(claim.uid)


def _entries(pod: PodView) -> list[PodClaim]:
    """With the claim that a scheduler made for extended resources."""
    extended = [PodClaim(resource_claim_name=pod.extended_claim)] if pod.extended_claim else []
    return [*pod.claims, *extended]
