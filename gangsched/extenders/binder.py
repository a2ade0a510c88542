"""ExtenderBinder: the Bind plugin of an extender with a bindVerb, asked before all others.

Lives here: when it binds, and when it may not. Not here: the wire (client.py). The protocol cannot carry
annotations: a pod with device IDs cannot be bound this way, as node and IDs must come in one write; other
annotations (gang, rank, attempt) are missing on such a pod.
Source: kubernetes `pkg/scheduler/schedule_one.go` (extendersBinding).
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.config import ExtenderConfig
from gangsched.core.framework.interface import SKIP, SUCCESS, Code, Handle, Status
from gangsched.core.groups.attempts.extenders import Interest
from gangsched.extenders.client import Extender, ExtenderError, ExtenderRefused
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.objects import Pod

# The client's own deadline comes first and has the better message.
_SLACK_S = 1.0


class ExtenderBinder:
    """Binds the pods that its extender manages; leaves the others to the next plugin."""

    name = "ExtenderBinder"

    def __init__(self, extender: Extender | None, config: ExtenderConfig, interest: Interest) -> None:
        """extender: its client; None: nothing is bound here, as in a replay."""
        self._extender = extender
        self._config = config
        self._interest = interest
        self.hook_timeout_s = config.timeout_s + _SLACK_S

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str], handle: Handle) -> Status:
        """SKIP if it failed and may be ignored, as in kube-scheduler. Only an answer can refuse."""
        if not self._interest.manages(pod.spec):
            return SKIP
        if ALLOCATED_KEY in annotations:
            return Status.unschedulable(
                f"extender {self._config.url} binds this pod and cannot write its device IDs"
            )
        assert self._extender is not None
        try:
            await self._extender.bind(pod, node_name)
        except ExtenderError as error:
            if self._config.ignorable:
                handle.log.warning(f"{error}; it is ignored")
                return SKIP
            said_no = isinstance(error, ExtenderRefused)
            return Status(Code.UNSCHEDULABLE if said_no else Code.ERROR, str(error))
        return SUCCESS
