"""The section `extenders`. Source: k8s.io/kube-scheduler `config/v1/types.go` (Extender)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from gangsched.config.documents import Document


class ManagedResource(Document, frozen=True):
    name: Annotated[str, Meta(description="It is asked about pods that want this resource only.")]
    ignored_by_scheduler: Annotated[
        bool,
        Meta(description="NodeResourcesFit does not count this resource."),
    ] = False


class TLSDocument(Document, frozen=True):
    """The data are base64 of PEM and take precedence over the files."""

    insecure: Annotated[bool, Meta(description="Do not check its certificate.")] = False
    server_name: Annotated[str, Meta(description="The name its certificate must bear.")] = ""
    cert_file: Annotated[str, Meta(description="Our certificate, PEM.")] = ""
    key_file: Annotated[str, Meta(description="Its key, PEM.")] = ""
    ca_file: Annotated[str, Meta(description="Who may have signed its certificate, PEM.")] = ""
    cert_data: Annotated[str, Meta(description="Our certificate, base64 of PEM; wins over the file.")] = ""
    key_data: Annotated[str, Meta(description="The key, base64 of PEM; wins over the file.")] = ""
    ca_data: Annotated[str, Meta(description="The authority, base64 of PEM; wins over the file.")] = ""


class ExtenderDocument(Document, frozen=True):
    """Names and meanings are kube-scheduler's."""

    url_prefix: Annotated[
        str,
        Meta(description="The extender's address; a verb is added to it after a slash. Required."),
    ] = msgspec.field(name="urlPrefix")
    filter_verb: Annotated[str, Meta(description="Asked which nodes will do; empty: not asked.")] = ""
    preempt_verb: Annotated[str, Meta(description="Refused: extenders are not asked about victims.")] = ""
    prioritize_verb: Annotated[
        str,
        Meta(description="Asked which nodes are better; needs a `weight` above 0."),
    ] = ""
    weight: Annotated[int, Meta(description="What its scores are multiplied by.")] = 0
    bind_verb: Annotated[
        str,
        Meta(description="Binds pods in the scheduler's stead; one extender at most."),
    ] = ""
    enable_https: Annotated[
        bool,
        Meta(
            description="Use TLS; without a `caFile` or `caData` the certificate is not checked, as in"
            " kube-scheduler."
        ),
    ] = msgspec.field(name="enableHTTPS", default=False)
    tls_config: TLSDocument | None = None
    http_timeout: Annotated[str, Meta(description="How long an answer may take; 0 is 5 s.")] = "0s"
    node_cache_capable: Annotated[
        bool,
        Meta(description="It is sent names of nodes instead of whole nodes."),
    ] = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: Annotated[
        bool,
        Meta(description="If it cannot be reached it is left out; otherwise the pod's attempt fails."),
    ] = False
