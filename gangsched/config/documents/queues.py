"""The sections `queues` and `fairness`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gangsched.config.documents import Document


class Fairness(Document, frozen=True):
    """Read as config.queues.QueuesSettings."""

    half_life: Annotated[
        str,
        Meta(
            description="After how long what a queue has held counts half, beside what it holds now. 0s: only"
            " what it holds now counts. Needs `queues`."
        ),
    ] = "24h"
    compare: Annotated[
        tuple[str, ...],
        Meta(
            description="The resources by which shares are compared: a queue's share is the largest part of"
            " the cluster that it holds of any of them."
        ),
    ] = ("nvidia.com/gpu", "cpu", "memory")
    other_queues: Annotated[
        Literal["ignore", "read"],
        Meta(
            description="`read`: a pod without `gangsched.io/queue` may name its queue by"
            " `kai.scheduler/queue`, `scheduling.volcano.sh/queue-name` or `yunikorn.apache.org/queue`."
        ),
    ] = "ignore"
    reclaim: Annotated[
        Literal["guaranteed", "fair", "never"],
        Meta(
            description="Which pods are evicted for a queue: those that hold what is guaranteed to it; with"
            " `fair` also those that hold what is its share; with `never` none ([queues](queues.md))."
        ),
    ] = "guaranteed"
    kueue_admission: Annotated[
        Literal["ignore", "passesLimits"],
        Meta(
            description="`passesLimits`: what Kueue has admitted of a queue's pods does not count in its"
            " limits ([queues](queues.md#what-kueue-has-admitted))."
        ),
    ] = "ignore"


class QueueDocument(Document, frozen=True):
    """Read as config.queues.QueueConfig. queues: each again such a document."""

    name: Annotated[
        str,
        Meta(
            description="Lower case letters, digits and dashes, at most 63; once in the whole tree. Without"
            " `queues` there are none, and all groups stand in one line. See [Queues](queues.md)."
        ),
    ]
    share: Annotated[
        float,
        Meta(description="What it is due among the queues beside it, as a proportion."),
    ] = 1.0
    guaranteed: Annotated[
        dict[str, str | int],
        Meta(
            description="By resource: until it holds as much, it goes before those that hold more than"
            " theirs. Those of the queues below it fit into it."
        ),
    ] = msgspec.field(default_factory=dict)
    limit: Annotated[
        dict[str, str | int],
        Meta(description="By resource: it and all below it never hold more."),
    ] = msgspec.field(default_factory=dict)
    namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="The namespaces whose pods it is for: names, and prefixes that end in `*`. Each"
            " stands in one queue, and only queues without others below them have any. The closest one counts"
            " for a pod that names no queue."
        ),
    ] = ()
    default_walltime: Annotated[
        str,
        Meta(
            description="The walltime of its groups that state none and whose kind has not run yet. Takes"
            " precedence over `queueing.defaultWalltime`; not with `mode: off`."
        ),
    ] = ""
    bound: Annotated[
        int | Literal["auto"] | None,
        Meta(
            description="The [bound](queueing.md#who-is-passed-over) of its groups: a number, or `auto`. Not"
            " set: that of the closest queue above it that has one, else `queueing.bound.groups`; not with"
            " `mode: off`."
        ),
    ] = None
    order: Annotated[
        Literal["fifo", "shortest"],
        Meta(
            description="In the queue, after priority: `fifo`, or `shortest` walltime first; not with `mode:"
            " off`."
        ),
    ] = "fifo"
    queues: Annotated[
        tuple[dict[str, Any], ...],
        Meta(
            description="The queues below it, each with the same fields; 8 levels and 1,000 queues at most."
        ),
    ] = ()
