"""Parts that a scheduler process has where they are asked for: each is loaded there, and not before.

Lives here: the imports that a plain start does without. Not here: how the parts are put together (app).
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
from gangsched.inbox import Decider
from gangsched.kube.client import ApiClient
from gangsched.model.events import Event

if TYPE_CHECKING:
    from gangsched.core.groups.extenders import ExtenderVerdicts
    from gangsched.extenders.asking import Asking
    from gangsched.extension.reload import Host, Reload
    from gangsched.extension.source import ConfigSource
    from gangsched.shadow.published import Reports, ShadowSettings
    from gangsched.telemetry.service import Tracing
    from gangsched.web.measures import Measures


def observer(measures: Measures | None, tracing: Tracing | None) -> Observer | None:
    """Who is told what the core does; None where nobody is, which costs the core nothing."""
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
    """Who asks them, and what the core knows of them; loaded where there are any."""
    if not config.extenders:
        return None, None
    from gangsched.extenders.asking import Asking

    asking = Asking(config.extenders, client, put)
    return asking, asking.verdicts


async def require_binding_labels(client: ApiClient, rng: Random, *, source: str) -> None:
    """For who writes device IDs as labels. Raises: ConfigError (an API server that would drop them)."""
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
    """What stands before the core in shadow mode, and its reports; loaded for it alone."""
    from gangsched.shadow.follower import Shadow
    from gangsched.shadow.published import Reports

    follower = Shadow(scheduler, profiles)
    return follower, Reports(follower.records, settings, names=list(profiles))


def measures() -> Measures:
    """A scheduler without pages loads nothing of this."""
    from gangsched.web.measures import Measures

    return Measures()
