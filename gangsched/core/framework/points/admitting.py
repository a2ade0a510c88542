"""Asking Admit's plugins about a group, also as if some pods were gone. Called by core.framework.profile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.plugin_calls import CallPlugin, checked_status, converted
from gangsched.core.framework.points.queueing import AdmitAgainPlugin, AdmitPlugin, AdmitWithoutPlugin
from gangsched.core.framework.status import SUCCESS, Code, Status
from gangsched.core.framework.supports import serves
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import Group, PodInfo

_NO = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING))


def admitted(
    plugins: Iterable[AdmitPlugin],
    ask: CallPlugin,
    group: Group,
    members: Sequence[PodInfo],
    view: QueueView,
    gone: Collection[PodInfo],
) -> Status:
    """Returns the first "no", or success; gone: pods that count as off their nodes. Raises: PluginError."""
    for plugin in plugins:
        if gone and serves(plugin, AdmitWithoutPlugin):
            answer = ask(plugin.name, "Admit", plugin.admit_without, group, members, gone, view)
        else:
            answer = ask(plugin.name, "Admit", plugin.admit, group, members, view)
        status = checked_status(plugin.name, "Admit", answer, _NO)
        if not status.is_success:
            return status
    return SUCCESS


def admits_again(
    plugin: AdmitPlugin,
    ask: CallPlugin,
    group: Group,
    members: Sequence[PodInfo],
    change: ClusterChange,
    view: QueueView,
) -> bool:
    """Whether the plugin, which keeps the group out, should be asked again after this change. Raises:
    PluginError."""
    if not serves(plugin, AdmitAgainPlugin):
        return True
    asked = (plugin.admit_again, bool, group, members, change, view)
    return ask(plugin.name, "Admit", converted, *asked)


def may_admit_without(
    plugin: AdmitPlugin | None, ask: CallPlugin, group: Group, members: Sequence[PodInfo], view: QueueView
) -> bool:
    """Whether the plugin, which keeps the group out, may let it in if pods are evicted. Raises:
    PluginError."""
    if plugin is None or not serves(plugin, AdmitWithoutPlugin):
        return False
    asked = (plugin.may_admit_without, bool, group, members, view)
    return ask(plugin.name, "Admit", converted, *asked)
