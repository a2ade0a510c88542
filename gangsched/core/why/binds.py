"""Reasons of a gang that is being bound: why binds are not sent, and why they came to nothing."""

from __future__ import annotations

from gangsched.core.why import Because, Why, words
from gangsched.model.text.printable import marked

# -- not sent ----------------------------------------------------------------------------------------------


class PreBindFailed(Because, frozen=True):
    """A PreBind plugin has refused a pod, or failed, in its words."""

    pod: str
    error: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.error}"


class TooFewPrepared(Because, frozen=True):
    """Members left while the gang was prepared, and too few are there to bind it."""

    gang: str
    n_left: int
    n_needed: int

    def __str__(self) -> str:
        return f"{self.n_left} of {self.n_needed} members of {self.gang} are left"


class LeftUnbound(Because, frozen=True):
    """Members of a gang left before any of them was bound."""

    def __str__(self) -> str:
        return "members left before any was bound"


class SiblingNotBound(Because, frozen=True):
    """A gang that starts with it was not bound."""

    gang: str

    def __str__(self) -> str:
        return f"gang {self.gang}, which starts with it, was not bound"


class MayBeMixedUp(Because, frozen=True):
    """kubelet could give a pod the devices of another one that is due on the same node."""

    pod: str
    other: str
    n: int
    resource: str
    node: str

    def __str__(self) -> str:
        return (
            f"{marked('pod', [self.other])} is about to be given {self.n} {self.resource} on {self.node} by"
            f" kubelet's device plugin API, which could mix it up with {self.pod}"
        )


class TurnMissed(Because, frozen=True):
    """A gang has waited for too long for its turn to be bound."""

    def __str__(self) -> str:
        return "its turn did not come in time"


class RestNotSent(Because, frozen=True):
    """Members of a gang that is being bound have waited for their turn for too long."""

    def __str__(self) -> str:
        return "the rest of the gang was not sent in time"


class NoBinder(Because, frozen=True):
    """No plugin of its profile binds the pod."""

    pod: str

    def __str__(self) -> str:
        return f"no Bind plugin of the profile takes {self.pod}"


class BindTakenBack(Because, frozen=True):
    """A bind was taken back before it was sent."""

    pod: str

    def __str__(self) -> str:
        return f"binding {self.pod} was taken back"


# -- came to nothing ---------------------------------------------------------------------------------------


class BindRefused(Because, frozen=True):
    """The API server has refused a bind, in its words. cure: what helps; "": it is not known."""

    pod: str
    node: str
    code: int
    message: str
    cure: str

    def __str__(self) -> str:
        text = f"binding {self.pod} to {self.node}: {self.code} {self.message}"
        return f"{text}; {self.cure}" if self.cure else text


class BindWithoutEffect(Because, frozen=True):
    """Binds of a pod did not take effect. answer: the API server's last one, in its words; "": none."""

    pod: str
    n_tries: int
    answer: str

    def __str__(self) -> str:
        text = f"binding {self.pod} did not take effect after {self.n_tries} tries"
        return f"{text}: {self.answer}" if self.answer else text


class PodGone(Because, frozen=True):
    """A pod that was to be bound is gone."""

    pod: str

    def __str__(self) -> str:
        return f"{self.pod} is gone"


class PodGoes(Because, frozen=True):
    """A pod that was to be bound is being deleted, or has ended."""

    pod: str

    def __str__(self) -> str:
        return f"{self.pod} is being deleted"


class KubeletRefused(Because, frozen=True):
    """kubelet has refused a pod that was bound to its node, for a reason in its words."""

    pod: str
    node: str
    reason: str

    def __str__(self) -> str:
        return f"pod {self.pod} was refused on node {self.node}: {self.reason}"


class LeftWhileBound(Because, frozen=True):
    """No bind has failed: members of the gang have left."""

    def __str__(self) -> str:
        return "members left"


class NotBound(Because, frozen=True):
    """No bind of a gang has landed."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} was not bound: {self.why}"


class StartedInPart(Because, frozen=True):
    """A gang has started with the members that it needs, and binds of others have failed."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} has started without all of its members: {self.why}"


class AnswerUnclear(Because, frozen=True):
    """The API server gives no clear answer to a gang's binds. message: in its words."""

    gang: str
    message: str

    def __str__(self) -> str:
        return (
            f"gang {self.gang} keeps what it has reserved until the API server itself gives a clear answer: "
            f"{words(self.message)}"
        )
