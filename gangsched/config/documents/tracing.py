"""The section `tracing`."""

from typing import Annotated

from msgspec import Meta

from gangsched.config.documents import Document


class KeepTraces(Document, frozen=True):
    """Read as config.tracing.KeepTraces. "" and false: such gangs are sampled like any other."""

    slower_than: Annotated[
        str,
        Meta(
            description="Gangs that take longer than this (`90s`), from their first member seen, are traced"
            " whatever `samplingRatio` is."
        ),
    ] = ""
    failed: Annotated[
        bool,
        Meta(
            description="Likewise gangs that gave reservations back, had a failed bind, were evicted, or were"
            " deleted after failed attempts."
        ),
    ] = False
    preempting: Annotated[bool, Meta(description="Likewise gangs that other pods were evicted for.")] = False
    max_held_spans: Annotated[
        int,
        Meta(
            description="How many spans, and events on them, are held in memory (about 2 kB each) for gangs"
            " outside the ratio that have not ended."
        ),
    ] = 20_000


class Tracing(Document, frozen=True):
    """Off if neither an endpoint nor a file is set. Read as config.tracing.TracingSettings."""

    endpoint: Annotated[
        str,
        Meta(description="A collector's URL, OTLP over HTTP; `/v1/traces` is added to a URL without a path."),
    ] = ""
    file: Annotated[str, Meta(description="A file that traces are appended to, for `gangsched trace`.")] = ""
    sampling_ratio: Annotated[float, Meta(description="What share of the gangs is traced, 0 to 1.")] = 1.0
    keep: KeepTraces = KeepTraces()
