"""Runs a node's device plugins: gathers knowledge when kubelet calls, and reports what kubelet gave.

Lives here: the tasks and the requests. Not here: kubelet's calls (`device_plugin`), choosing a set
(`hand_off`), the content of the report (`agent.plugins.granted`), and writing it (`reporter`). Run by `app`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import anyio
import structlog

from gangsched.agent.plugins.device_plugin import Mismatch, Plugin, PluginServer
from gangsched.agent.plugins.granted import is_whole, report
from gangsched.agent.plugins.hand_off import Known
from gangsched.agent.plugins.kubelet import Kubelet, KubeletError
from gangsched.agent.plugins.plan import Given, Memory, NodePods, PlannedPod
from gangsched.agent.plugins.settings import KubeletDocument, PluginDocument
from gangsched.agent.report.inventory import Listed
from gangsched.model.effects import RecordEvent

_log = structlog.get_logger(__name__)

# PodResources is read this often, and this soon after devices were given.
READ_S = 5.0
_AT_ONCE_S = 0.05
_SOON_S = (0.2, 0.5, 1.5)
# A pod missing from kubelet's list is reported after this long.
_STRANGE_S = 60.0
# Limit on refusals whose Events wait to be written; kubelet requests for one pod at a time, a stranger
# without limit.
_MAX_MISMATCHES = 64


class PluginRunner:
    """All plugins of one node, and kubelet's own choices for other plugins' resources.

    write_report: called with the annotation's new value when it changes; record: takes an Event for the API
    server; listed: returns the node's live pods from the API server, None if it does not answer.
    """

    def __init__(
        self,
        node: str,
        kubelet: KubeletDocument,
        plugins: Sequence[PluginDocument],
        pods: NodePods,
        *,
        write_report: Callable[[str], None],
        record: Callable[[RecordEvent], Awaitable[None]],
        listed: Callable[[], Awaitable[tuple[PlannedPod, ...] | None]],
    ) -> None:
        self.plugins = {settings.resource: Plugin(settings, self) for settings in plugins}
        self._node = node
        self._kubelet = Kubelet(kubelet)
        self._servers = [
            PluginServer(plugin, self._kubelet, kubelet.device_plugins) for plugin in self.plugins.values()
        ]
        self._resources: frozenset[str] = frozenset()
        self._planned = frozenset(one.resource for one in plugins if one.hand_off == "device-plugin")
        self._pods = pods
        self._write_report = write_report
        self._record = record
        self._listed = listed
        self._known: Known | None = None
        self._looking = anyio.Lock()
        self._looked: Known | KubeletError = KubeletError("not asked yet")
        self._n_looks = 0
        self._memory = Memory()
        self._news = anyio.Event()
        self._soon = anyio.Event()
        self._shown = anyio.Event()
        self._mismatches: list[Mismatch] = []
        self._trouble = ""
        self._strange_since_s: float | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with anyio.create_task_group() as everything:
                everything.start_soon(self._read_on)
                everything.start_soon(self._tell)
                # A plugin that lists nothing yet would make kubelet believe that its devices are gone.
                await self._shown.wait()
                for server in self._servers:
                    everything.start_soon(server.run)
        finally:
            self._kubelet.close()

    def show(self, listed: Listed) -> None:
        """Takes in the inventory as it is on the Node."""
        self._resources = frozenset(listed)
        for resource, plugin in self.plugins.items():
            plugin.show(listed.get(resource, {}).values())
        self._shown.set()

    def pods_changed(self) -> None:
        """Takes in that the watch has changed `pods`."""
        self._known = None
        self._announce()
        self._soon.set()

    # -- queries of the plugins ----------------------------------------------------------------------------

    async def look(self, *, again: bool) -> Known:
        """Returns current knowledge, cached until devices are granted or something changes."""
        if not again and self._known is not None:
            return self._known
        n_begun = self._n_looks
        async with self._looking:
            if self._n_looks == n_begun:
                self._n_looks += 1
                self._looked = await self._look()
            # Else another call's look began after this one was requested: any number of concurrent callers
            # cause at most two requests.
            if isinstance(self._looked, KubeletError):
                raise KubeletError(str(self._looked))
            return self._looked

    async def _look(self) -> Known | KubeletError:
        try:
            seen = await self._kubelet.pods()
            given = await self._kubelet.given()
        except KubeletError as error:
            return error
        # The scheduler may have assigned these devices to pods that the watch has not shown yet, so ask the
        # API server. While it does not answer, no pod can be bound, and the watch's last state is enough.
        pods = seen
        if not pods:
            listed = await self._listed()
            pods = self._pods.in_order(self._pods.all() if listed is None else listed)
        self._known = Known(pods, self._memory.completed(given, pods), by_kubelet=bool(seen))
        return self._known

    async def news(self, timeout_s: float) -> None:
        with anyio.move_on_after(timeout_s):
            await self._news.wait()

    def granted(self) -> None:
        self._known = None
        self._soon.set()

    def refused(self, mismatch: Mismatch) -> None:
        self._known = None
        if len(self._mismatches) < _MAX_MISMATCHES:
            self._mismatches.append(mismatch)
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """Read what kubelet has granted, soon after each grant and every few seconds."""
        pauses: list[float] = []
        while True:
            await self._read()
            with anyio.move_on_after(pauses.pop(0) if pauses else READ_S):
                await self._soon.wait()
            if self._soon.is_set():
                # kubelet records the devices after our answer, and a pod may end a second later.
                await anyio.sleep(_AT_ONCE_S)
                self._soon = anyio.Event()
                pauses = list(_SOON_S)

    async def _read(self) -> None:
        if not self._pods.is_known:
            return
        try:
            given = await self._kubelet.given()
        except KubeletError as error:
            self._say(f"what kubelet has given is not known: {error}")
            return
        pods = self._pods.all()
        # A kubelet that has just started lists few of its pods; the rest still have their devices.
        given = self._memory.completed(given, pods)
        if not is_whole(given, pods):
            self._wonder(given)
            return
        self._strange_since_s = None
        self._say("")
        had = self._memory.had(self._pods.ended())
        self._write_report(report(self._planned, given, pods, had, self._resources))

    async def _tell(self) -> None:
        """Record one Event for each container that got no devices."""
        while True:
            news = self._news
            while self._mismatches:
                mismatch = self._mismatches.pop(0)
                _log.error("no devices given", resource=mismatch.resource, why=mismatch.why)
                await self._record(
                    RecordEvent(
                        kind="Node",
                        api_version="v1",
                        namespace="",
                        name=self._node,
                        uid=self._node,
                        type="Warning",
                        reason="DeviceMismatch",
                        action="Allocate",
                        message=mismatch.why,
                        cause_id="",
                    )
                )
            await news.wait()

    # -- notices ---------------------------------------------------------------------------------------------

    def _wonder(self, given: Given) -> None:
        now_s = time.monotonic()
        if self._strange_since_s is None:
            self._strange_since_s = now_s
        if now_s - self._strange_since_s >= _STRANGE_S:
            missing = [str(pod) for pod in self._pods.all() if pod.has_started and not is_whole(given, [pod])]
            self._say(f"kubelet does not list {', '.join(missing[:4])}, which it has started; not reporting")

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.warning(trouble, node=self._node)
        self._trouble = trouble
