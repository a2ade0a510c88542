"""A Job's pods as the Job controller reads them. Pure functions.

Not here: building them (api_rules.job_pods).
Source: kubernetes pkg/controller/job (job_controller.go, indexed_job_utils.go), read in v1.37.
"""

from __future__ import annotations

from gangsched.api_rules.job_pods import INDEX_KEY, TRACKING
from gangsched.lab.apiserver.simulated.view import PodView


def index_of(pod: PodView, completions: int) -> int | None:
    """The pod's completion index, if it has a valid one."""
    text = (pod.metadata.annotations or {}).get(INDEX_KEY, "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) < completions else None


def is_tracked(pod: PodView) -> bool:
    """Whether it is not yet counted."""
    return TRACKING in pod.metadata.finalizers


def has_failed(pod: PodView, *, only_when_failed: bool) -> bool:
    """Whether it failed; deleted pods count at once, unless the Job replaces only pods that reached Failed.

    A pod that was never bound cannot reach Failed: it counts when it is deleted.
    """
    if pod.is_terminal:
        return pod.phase == "Failed"
    return pod.is_deleted and (not only_when_failed or not pod.node)


def removal_order(pod: PodView) -> tuple[bool, bool, bool]:
    """Sorts active pods for deletion: unbound first, then not running, then not ready."""
    return (bool(pod.node), pod.phase == "Running", pod.is_ready)
