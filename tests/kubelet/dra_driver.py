"""A driver of Dynamic Resource Allocation for one node: publishes devices, prepares claims as kubelet asks.

It refuses what no real driver could prepare: a device that is not of its node, one that another claim has,
and partitions of what is gone. On command it fails, is slow, or leaves claims out of its answer, and it tells
kubelet of sick devices.
Not here: which pods there are, and what they should have got (test_real_claims.py).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Server, Stream

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.kubelet import claims_pb2 as pb

GROUP = "/apis/resource.k8s.io/v1"
SLICES = f"{GROUP}/resourceslices"
DRIVER = "gpu.example.com"
CDI_KIND = f"k8s.{DRIVER}/claim"
_LOOK_S = 0.2
_HEALTHY, _UNHEALTHY = 1, 2

Json = dict[str, Any]


class Held(NamedTuple):
    """A device as a claim has it; share: the id of its share of a device that several claims have."""

    pool: str
    device: str
    share: str


class Refused(Exception):
    """Why a claim is not prepared."""


class Driver:
    """`async with Driver(plane, "n1", root, slices)`, beside a kubelet with that root directory.

    slices: specs of ResourceSlices, published as long as it runs; devices that reach other nodes besides are
    prepared here too. cdi: the folder for CDI specs, by which containerd since 1.7 gives a container an
    environment variable DRA_… for each of its devices, with pool, device and share; None for none.
    fails: what it says instead of preparing; delays_s: how long that takes; forgets: whether it leaves claims
    out of its answer; sick: pool and name of devices that are not healthy.
    """

    def __init__(
        self, plane: ControlPlane, node: str, root: Path, slices: Sequence[Json], *, cdi: Path | None = None
    ) -> None:
        self.node = node
        self.prepared: dict[str, frozenset[Held]] = {}
        """By the claim's UID."""
        self.calls: list[tuple[str, str]] = []
        """(prepare or unprepare, the claim's name), of what was done."""
        self.is_registered = False
        self.fails, self.delays_s, self.forgets = "", 0.0, False
        self.sick: set[tuple[str, str]] = set()
        self._plane = plane
        self._slices = list(slices)
        self._content = {
            (one["pool"]["name"], device["name"]): device
            for one in slices
            for device in one.get("devices", ())
        }
        self._counters = {
            (one["pool"]["name"], shared["name"], name): int(counter["value"])
            for one in slices
            for shared in one.get("sharedCounters", ())
            for name, counter in shared["counters"].items()
        }
        self._cdi = cdi
        self._endpoint = root / "plugins" / DRIVER / "dra.sock"
        self._registration = root / "plugins_registry" / f"{DRIVER}-reg.sock"
        self._servers: list[Server] = []
        self._publishing: asyncio.Task[None] | None = None

    # -- its life --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        faces = ((self._endpoint, _Plugin(self)), (self._registration, _Registration(self)))
        for path, face in faces:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            server = Server([face])
            await server.start(path=str(path))
            self._servers.append(server)
        self._publishing = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _publish(self) -> None:
        """A kubelet that starts takes the slices of its node away, also after a driver has registered."""
        while True:
            with suppress(ApiError):
                await asyncio.to_thread(self._publish_missing)
            await asyncio.sleep(_LOOK_S)

    def _publish_missing(self) -> None:
        if not self.is_registered:
            return
        there = {one["metadata"]["name"] for one in self._plane.request("GET", SLICES)["items"]}
        for spec in self._slices:
            name = slice_name(spec, self._slices)
            if name not in there:
                self._plane.request("POST", SLICES, {"metadata": {"name": name}, "spec": spec})

    # -- what kubelet asks of it -----------------------------------------------------------------------------

    async def prepare(self, asked: pb.Claim) -> pb.NodePrepareResourceResponse:
        """Asked for again, a prepared claim stays as it is."""
        try:
            if self.fails:
                raise Refused(self.fails)
            claim = await asyncio.to_thread(self._claim, asked)
            results = _results(claim)
            held = frozenset(held_by(results))
            self._check(asked.uid, held)
        except Refused as error:
            return pb.NodePrepareResourceResponse(error=str(error))
        self.prepared[asked.uid] = held
        self.calls.append(("prepare", asked.name))
        self._write_cdi(asked.uid, held)
        return pb.NodePrepareResourceResponse(devices=[self._device(asked.uid, one) for one in results])

    def unprepare(self, asked: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        """One that is not prepared is no error."""
        self.prepared.pop(asked.uid, None)
        self.calls.append(("unprepare", asked.name))
        if self._cdi is not None:
            self._cdi_file(self._cdi, asked.uid).unlink(missing_ok=True)
        return pb.NodeUnprepareResourceResponse()

    def health(self) -> pb.WatchResponse:
        """Of all of its devices."""
        now_s = int(time.time())
        return pb.WatchResponse(
            devices=[
                pb.DeviceHealth(
                    device=pb.DeviceIdentifier(pool_name=pool, device_name=name),
                    health=_UNHEALTHY if (pool, name) in self.sick else _HEALTHY,
                    last_updated_time=now_s,
                )
                for pool, name in self._content
            ]
        )

    def _claim(self, asked: pb.Claim) -> Json:
        try:
            found: Json = self._plane.request(
                "GET", f"{GROUP}/namespaces/{asked.namespace}/resourceclaims/{asked.name}"
            )
        except ApiError as error:
            raise Refused(f"claim {asked.name}: {error}") from None
        if found["metadata"]["uid"] != asked.uid:
            raise Refused(f"claim {asked.name} is another than kubelet means")
        return found

    def _check(self, uid: str, held: frozenset[Held]) -> None:
        """Raises: Refused."""
        if not held:
            raise Refused("the claim has no device of this driver")
        after = {**self.prepared, uid: held}
        spent: dict[tuple[str, str, str], int] = {}
        for one in {(one.pool, one.device) for each in after.values() for one in each}:
            content = self._content.get(one)
            if content is None:
                raise Refused(f"device {one} is not of node {self.node}")
            users = [each for each in after.values() if any((it.pool, it.device) == one for it in each)]
            if len(users) > 1 and not content.get("allowMultipleAllocations"):
                raise Refused(f"device {one} is in {len(users)} claims")
            for consumed in content.get("consumesCounters", ()):
                for name, counter in consumed["counters"].items():
                    key = (one[0], consumed["counterSet"], name)
                    spent[key] = spent.get(key, 0) + int(counter["value"])
        over = {key: n for key, n in spent.items() if n > self._counters[key]}
        if over:
            raise Refused(f"partitions of more than there is: {over} of {self._counters}")

    def _device(self, uid: str, result: Json) -> pb.Device:
        return pb.Device(
            # Not the alternative that was chosen: kubelet compares with what containers name.
            request_names=[result["request"].partition("/")[0]],
            pool_name=result["pool"],
            device_name=result["device"],
            cdi_device_ids=[f"{CDI_KIND}={_cdi_name(uid, result)}"] if self._cdi is not None else [],
            share_id=result.get("shareID"),
        )

    # -- what the runtime reads ------------------------------------------------------------------------------

    def _write_cdi(self, uid: str, held: Iterable[Held]) -> None:
        if self._cdi is None:
            return
        devices = []
        for one in held:
            name = _cdi_name(uid, one._asdict())
            # A shell drops variables whose names it does not allow.
            env = f"DRA_{name.replace('-', '_')}={'/'.join(one)}"
            devices.append({"name": name, "containerEdits": {"env": [env]}})
        spec = {"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": devices}
        path = self._cdi_file(self._cdi, uid)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_text(json.dumps(spec))
        written.rename(path)

    @staticmethod
    def _cdi_file(folder: Path, uid: str) -> Path:
        return folder / f"{CDI_KIND.replace('/', '_')}-{uid}.json"


class _Plugin:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def prepare(
        self, stream: Stream[pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse]
    ) -> None:
        request = await stream.recv_message()
        assert request is not None
        await asyncio.sleep(self._driver.delays_s)
        answers = {}
        if not self._driver.forgets:
            answers = {claim.uid: await self._driver.prepare(claim) for claim in request.claims}
        with suppress(StreamTerminatedError):  # kubelet waits no longer
            await stream.send_message(pb.NodePrepareResourcesResponse(claims=answers))

    async def unprepare(
        self, stream: Stream[pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse]
    ) -> None:
        request = await stream.recv_message()
        assert request is not None
        answers = {claim.uid: self._driver.unprepare(claim) for claim in request.claims}
        await stream.send_message(pb.NodeUnprepareResourcesResponse(claims=answers))

    async def watch(self, stream: Stream[pb.WatchRequest, pb.WatchResponse]) -> None:
        await stream.recv_message()
        with suppress(StreamTerminatedError):
            while True:
                await stream.send_message(self._driver.health())
                await asyncio.sleep(_LOOK_S)

    def __mapping__(self) -> Mapping[str, Handler]:
        service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
        return {
            "/v1.DRAResourceHealth/NodeWatchResources": Handler(
                self.watch, Cardinality.UNARY_STREAM, pb.WatchRequest, pb.WatchResponse
            ),
            f"{service}/NodePrepareResources": Handler(
                self.prepare,
                Cardinality.UNARY_UNARY,
                pb.NodePrepareResourcesRequest,
                pb.NodePrepareResourcesResponse,
            ),
            f"{service}/NodeUnprepareResources": Handler(
                self.unprepare,
                Cardinality.UNARY_UNARY,
                pb.NodeUnprepareResourcesRequest,
                pb.NodeUnprepareResourcesResponse,
            ),
        }


class _Registration:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def info(self, stream: Stream[pb.InfoRequest, pb.PluginInfo]) -> None:
        await stream.recv_message()
        endpoint = str(self._driver._endpoint)
        versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"]
        info = pb.PluginInfo(type="DRAPlugin", name=DRIVER, endpoint=endpoint, supported_versions=versions)
        await stream.send_message(info)

    async def notify(self, stream: Stream[pb.RegistrationStatus, pb.RegistrationStatusResponse]) -> None:
        status = await stream.recv_message()
        assert status is not None
        assert status.plugin_registered, status.error
        self._driver.is_registered = True
        await stream.send_message(pb.RegistrationStatusResponse())

    def __mapping__(self) -> Mapping[str, Handler]:
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": Handler(self.info, Cardinality.UNARY_UNARY, pb.InfoRequest, pb.PluginInfo),
            f"{service}/NotifyRegistrationStatus": Handler(
                self.notify, Cardinality.UNARY_UNARY, pb.RegistrationStatus, pb.RegistrationStatusResponse
            ),
        }


def slice_name(spec: Json, among: Sequence[Json]) -> str:
    """Each has a name of its own."""
    return f"{DRIVER}-{spec['pool']['name']}-{among.index(spec)}"


def held_by(results: Iterable[Json]) -> list[Held]:
    """The devices of an allocation's results."""
    return [Held(one["pool"], one["device"], one.get("shareID", "")) for one in results]


def _results(claim: Json) -> list[Json]:
    allocation = claim.get("status", {}).get("allocation", {})
    return [one for one in allocation.get("devices", {}).get("results", ()) if one["driver"] == DRIVER]


def _cdi_name(uid: str, device: Mapping[str, str]) -> str:
    return f"{uid}-{device['pool']}-{device['device']}"
