"""The section `queueing`."""

from typing import Annotated, Literal

from msgspec import Meta

from gangsched.config.documents import Document


class Bound(Document, frozen=True):
    """Read as config.queueing.QueueingSettings."""

    groups: Annotated[
        int | Literal["auto"],
        Meta(
            description="After how many groups that start in front of it a gang that does not fit [gets room"
            " kept for it](queueing.md#who-is-passed-over). `auto`: 8 for each group that runs when it is"
            " first refused, and at least 64; and the first in line has a claim as soon as its start can be"
            " promised. A number that a reload brings holds for waiting groups, too."
        ),
    ] = "auto"
    mode: Annotated[
        Literal["off", "shadow", "hard", "budget"] | None,
        Meta(
            description="`off`: neither walltimes are read nor passes counted. `shadow`: they are counted and"
            " reported, and nothing else happens. `hard`: at its bound a group gets a"
            " [claim](queueing.md#claims), and no group passes it any more. `budget`: once the claim keeps no"
            " more idle [than is earned](queueing.md#without-walltimes); until then groups continue to pass"
            " it. Not set: `budget`."
        ),
    ] = None
    protects: Annotated[
        Literal["gangs", "all"] | None,
        Meta(
            description="`gangs`: lone pods are not counted, and start among themselves as in kube-scheduler;"
            " `all`: they have a bound, too. Not set: `all` where `mode` is, else `gangs`."
        ),
    ] = None
    idle_percent: Annotated[
        int | None,
        Meta(
            description="With `mode: budget`: how much of each resource of the cluster claims may keep idle,"
            " on average: 1 to 100. Not set: 10."
        ),
    ] = None


class Queueing(Document, frozen=True):
    """Read as config.queueing.QueueingSettings."""

    bound: Bound = Bound()
    default_walltime: Annotated[
        str,
        Meta(
            description="[How long a group runs](queueing.md#how-long-groups-run) that does not say so and is"
            " like none that ran before: `24h`. Not set: for ever."
        ),
    ] = ""
    on_overrun: Annotated[
        Literal["none", "yield", "evict"] | None,
        Meta(
            description="What becomes of a group that runs past the walltime it states. `none`: nothing."
            " `yield`: while a [claim](queueing.md#claims) waits for its place, it is evicted [half a minute"
            " later](queueing.md#past-the-walltime), if the claim's gang can start then. `evict`: it is"
            " evicted half a minute later in any case; needs no claims. Not set: `none`."
        ),
    ] = None
    estimates: Annotated[
        Literal["asked", "written"] | None,
        Meta(
            description="[Estimated starts](queueing.md#estimated-starts): `written` to PodGroups as they"
            " change, or made only when `asked` for. Not set: `written` where `queueing` is, else `asked`."
        ),
    ] = None
