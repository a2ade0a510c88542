"""The two documents of the configuration file as written, with their defaults.

The first is kube-scheduler's own, so that its files work unchanged; the second is ours. Here: their names,
and what their parts share; the modules beside it have them by section. A field's description is its row in
docs/configuration.md, hence the links. Rules between fields are in config itself. No module here imports
`annotations` from __future__: kept as text they would be compiled at each start, twice.
"""

import msgspec

KUBE_API_VERSION = "kubescheduler.config.k8s.io/v1"
KUBE_KIND = "KubeSchedulerConfiguration"
OUR_API_VERSION = "gangsched.io/v1"
OUR_KIND = "GangschedConfiguration"
DEFAULT_SCHEDULER_NAME = "gangsched"
"""Without a file. A file whose only profile has no name means kube-scheduler's `default-scheduler`."""


class Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the file: an unknown field is a mistake, and names are in camel case."""


def file_with(ours: str) -> str:
    """The text of a file with the default profile, and with these lines in our document."""
    return (
        f"apiVersion: {KUBE_API_VERSION}\nkind: {KUBE_KIND}\n"
        f"profiles: [{{schedulerName: {DEFAULT_SCHEDULER_NAME}}}]\n"
        f"---\napiVersion: {OUR_API_VERSION}\nkind: {OUR_KIND}\n{ours}"
    )
