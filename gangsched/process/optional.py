"""Optional parts of a scheduler process: each is loaded only when it is configured.

Lives here: imports that a plain start avoids. Not here: how the parts are put together (app).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from gangsched.config import SchedulerConfig
from gangsched.core.framework.observer import Observer, Observers
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.kube.client import ApiClient
from gangsched.model.events import Event
from gangsched.process.loop import Decider

if TYPE_CHECKING:
    from gangsched.core.groups.attempts.extenders import ExtenderVerdicts
    from gangsched.extenders.asking import Asking
    from gangsched.extension.reload import Host, Reload
    from gangsched.extension.source import ConfigSource
    from gangsched.shadow.published import Reports, ShadowSettings
    from gangsched.telemetry.service import Tracing
    from gangsched.web.metrics.measures import Measures


def observer(measures: Measures | None, tracing: Tracing | None) -> Observer | None:
    """Returns the core's observer; None if nothing needs one, which costs the core nothing."""
    observers: list[Observer] = [] if measures is None else [measures]
    if tracing is not None:
        observers.append(tracing.tracer)
    return Observers(observers) if len(observers) > 1 else next(iter(observers), None)


def reload(source: ConfigSource, host: Host) -> Reload:
    """Follows the configuration's file."""
    from gangsched.extension.reload import Reload

    return Reload(source, host)


def extenders(
    config: SchedulerConfig, client: ApiClient, put: Callable[[Sequence[Event]], Awaitable[None]]
) -> tuple[Asking | None, ExtenderVerdicts | None]:
    """Returns the extenders' client and their plugin for the core; loaded only if there are extenders."""
    if not config.extenders:
        return None, None
    from gangsched.extenders.asking import Asking

    asking = Asking(config.extenders, client, put)
    return asking, asking.verdicts


async def require_binding_labels(client: ApiClient, rng: Random, *, source: str) -> None:
    """Checks support for device IDs as labels. Raises: ConfigError (the API server would drop them)."""
    from gangsched.kube.transport.backoff import Backoff
    from gangsched.kube.version import require_binding_labels

    try:
        await require_binding_labels(client, Backoff(rng, first_s=0.1, max_s=5.0), source=source)
    except ConfigError:
        client.close()
        raise


def shadow(
    scheduler: Scheduler, profiles: dict[str, Profile], settings: ShadowSettings
) -> tuple[Decider, Reports]:
    """Returns shadow mode's wrapper of the core, and its reports; loaded only for it."""
    from gangsched.shadow.follower import Shadow
    from gangsched.shadow.published import Reports

    follower = Shadow(scheduler, profiles)
    return follower, Reports(follower.records, settings, names=list(profiles))


def measures(tracing: Tracing | None) -> Measures:
    """Returns the measures; a scheduler without pages loads none of this."""
    from gangsched.web.metrics.measures import Measures

    return Measures(trace_id_of=None if tracing is None else tracing.tracer.trace_id_of)
