"""Pod templates and Jobs inside other objects: only the number of pods and their scheduler."""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta
from gangsched.model.owners.owner import Count


class Wire(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Shared options of all objects here."""


class TemplateSpec(Wire):
    scheduler_name: str = ""


class Template(Wire):
    """A pod template."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class JobSpec(Wire):
    parallelism: Count | None = None
    # For a work queue: its number of items, few of which are pods at a time.
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    template: Template = msgspec.field(default_factory=Template)

    @property
    def n_at_once(self) -> int:
        """How many of its pods run at the same time."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else max(0, min(parallelism, self.completions))


class JobTemplate(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
