"""DefaultBinder: the name under which a profile enables the Binding POST. The core does the binding."""

from __future__ import annotations


class DefaultBinder:
    """Marks the bind point as served; has no hook, because a Binding is an effect of core.scheduler."""

    name = "DefaultBinder"
