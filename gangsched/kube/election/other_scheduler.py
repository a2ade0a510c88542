"""OtherScheduler: notices a second scheduler of the same pods where no election keeps them apart.

Without leader election a process acts at once, and two of them both place and bind: the second, started on a
laptop for a test or left over from yesterday, is easily forgotten. Each writes its name into the Lease
`<name of the lease>-alone`, which decides nothing. Who finds another's name where it wrote its own knows of
the other; so do both, within two periods. With leader election a replica only reads that Lease, and without
it also reads the elected leader's: one that is renewed between two looks belongs to a process that lives.

| this process | the other | who notices |
|---|---|---|
| no election | no election | both: each overwrites the other's name |
| no election | election | both: each sees the other's Lease renewed |
| election | election | nobody: that is what the election is for |

Times in a Lease are compared for change alone. Called by gangsched.process.leadership.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import anyio
import structlog

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.election.lease_object import LeaseObject
from gangsched.kube.reach import is_logged
from gangsched.model.text.printable import one_line

_log = structlog.get_logger(__name__)

PERIOD_S = 10.0
SUFFIX = "-alone"
# Where a process that was not installed writes its name: on a cluster for tries the configured namespace is
# not there, and all such processes find that.
_ALWAYS_THERE = "kube-system"


class OtherScheduler:
    """Looks from time to time, and logs each other scheduler once."""

    def __init__(self, client: ApiClient, settings: LeaderElectionSettings, *, identity: str) -> None:
        self._client = client
        self._settings = settings
        self._identity = identity
        self._namespace = ""
        self._before: tuple[str, str] | None = None
        self._has_written = False
        self._logged = ""
        self._problem = ""
        self._use(settings.resource_namespace)

    def _use(self, namespace: str) -> None:
        """Looks at the Leases of this namespace from now on."""
        name, elects = self._settings.resource_name, self._settings.leader_elect
        alone = LeaseObject(self._client, namespace, name + SUFFIX)
        self._own = None if elects else alone
        """Where this process writes its name."""
        self._other = alone if elects else LeaseObject(self._client, namespace, name)
        """Renewed by a process of the other mode."""
        self._namespace = namespace

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            try:
                await self.look()
                self._problem = ""
            except ApiError as error:
                if self._namespace != _ALWAYS_THERE and _lacks_namespace(error):
                    self._use(_ALWAYS_THERE)
                    continue
                self._complain(error)
            await anyio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Looks once, and writes this process' name where others look for it. Raises: ApiError."""
        now = _of(await self._other.read())
        if self._before is not None and now != self._before and now[0]:
            self._tell(now[0])
        self._before = now
        if self._own is None:
            return
        lease = await self._own.read()
        holder, _ = _of(lease)
        if self._has_written and holder and holder != self._identity:
            self._tell(holder)
        try:
            renewed = datetime.fromtimestamp(time.time(), UTC)  # by a clock that a simulation can replace
            await self._own.write(lease, renewed, holder=self._identity)
        except ApiError as error:
            if error.code != 409:  # the other was faster: the next look shows which
                raise
        self._has_written = True

    def _tell(self, holder: str) -> None:
        if holder == self._logged:
            return
        self._logged = holder
        _log.error(
            "another scheduler places and binds the same pods, and no leader election keeps the two apart:"
            " end one of them, or set leaderElection.leaderElect (--leader-elect) for both",
            other=holder,
            this=self._identity,
        )

    def _complain(self, error: ApiError) -> None:
        text = str(error)
        if text != self._problem and not is_logged(error):
            self._problem = text
            _log.info("whether another scheduler places the same pods is not known", err=text)


def _lacks_namespace(error: ApiError) -> bool:
    return error.reason == "NotFound" and error.subject is not None and error.subject.kind == "namespaces"


def _of(lease: dict[str, Any] | None) -> tuple[str, str]:
    """(its holder, when it says that it was renewed); empty where it does not exist or says nothing."""
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    return (
        one_line(holder)[:300] if isinstance(holder, str) else "",
        renewed if isinstance(renewed, str) else "",
    )
