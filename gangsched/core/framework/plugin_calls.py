"""Guards every call of a plugin: one that raises or returns nonsense is named, and costs one attempt.

Called wherever a plugin is called, mostly in core.framework.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar, TypeVarTuple

import numpy as np

from gangsched.core.framework.status import MAX_SCORE, SUCCESS, Code, NodeSubset, Status
from gangsched.core.types.arrays import FloatArray
from gangsched.errors import GangschedError, InvariantError
from gangsched.model.text.printable import in_words

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class CallPlugin(Protocol):
    """Calls a plugin at a point: `guarded`, or a version that also times it."""

    def __call__(self, plugin: str, point: str, call: Callable[[*Ts], T], /, *args: *Ts) -> T: ...


class PluginError(GangschedError):
    """A plugin raised or answered nonsense."""

    def __init__(self, plugin: str, point: str, problem: str) -> None:
        self.plugin = plugin
        self.point = point
        self.problem = problem
        super().__init__(f"plugin {plugin} failed in {point}: {problem}")


def guarded(plugin: str, point: str, call: Callable[[*Ts], T], /, *args: *Ts) -> T:
    """Returns the plugin's answer. Raises: PluginError."""
    try:
        return call(*args)
    except (PluginError, InvariantError):
        raise
    except Exception as error:
        raise blamed(plugin, point, error) from error


def converted(call: Callable[..., Any], as_type: Callable[[Any], T], *args: object) -> T:
    """Returns the answer as an int, a bool or a list: converting, too, may raise or run the plugin's code."""
    return as_type(call(*args))


def blamed(plugin: str, point: str, error: BaseException) -> PluginError:
    return PluginError(plugin, point, in_words(error))


def check_shape(plugin: str, point: str, own: Any, shape: tuple[int, ...], kinds: str) -> None:
    """`kinds` are NumPy's letters: b bool, i and u integers, f floats. Raises: PluginError."""
    if getattr(own, "shape", None) != shape or own.dtype.kind not in kinds:
        got = f"{getattr(own, 'dtype', type(own).__name__)}{getattr(own, 'shape', '')}"
        raise PluginError(
            plugin, point, f"answered {got}, expected an array of kind {kinds!r} and shape {shape}"
        )


def check_range(plugin: str, scores: FloatArray) -> None:
    """Raises: PluginError (a score that is NaN or not within 0..MAX_SCORE)."""
    # NaN fails both. The methods min and max would do the same through slower Python code.
    if len(scores) and not (np.minimum.reduce(scores) >= 0.0 and np.maximum.reduce(scores) <= MAX_SCORE):
        raise PluginError(plugin, "Score", f"a score is not within 0..{MAX_SCORE:.0f}")


def check_count(plugin: str, point: str, own: Any) -> None:
    """Raises: PluginError (not an integer, Python's or NumPy's)."""
    if type(own) is not int and not isinstance(own, Integral):  # the latter takes ten times as long
        raise PluginError(plugin, point, f"answered {type(own).__name__}, expected an int")


def bad_fields(status: Status) -> str:
    """Returns what is wrong with the types in a plugin's Status; "" if nothing is."""
    code: object = status.code
    timeout_s: object = status.timeout_s
    if type(code) is not Code:
        return f"answered a Status with {type(code).__name__} for its code, expected a Code"
    if problem := bad_reason(status):
        return problem
    # NaN is not above itself.
    if timeout_s is None or (isinstance(timeout_s, Real) and timeout_s >= timeout_s):
        return ""
    shown = "NaN" if isinstance(timeout_s, Real) else type(timeout_s).__name__
    return f"answered a Status with {shown} for its timeout_s, expected a number"


def bad_reason(answer: Status | NodeSubset) -> str:
    """Returns what is wrong with the reason, "" if nothing: an exception is no text, however well it
    prints."""
    reason: object = answer.reason
    if isinstance(reason, str):
        return ""
    got = f"a {type(answer).__name__} with {type(reason).__name__} for its reason"
    return f"answered {got}, expected a text"


def check_subset(plugin: str, answer: NodeSubset, n_rows: int) -> None:
    """Raises: PluginError (a mask of another kind or size, a reason that is no text)."""
    check_shape(plugin, "PreFilter", answer.mask, (n_rows,), "b")
    if problem := bad_reason(answer):
        raise PluginError(plugin, "PreFilter", problem)


def checked_status(plugin: str, point: str, answer: Any, allowed: frozenset[Code]) -> Status:
    """Returns the answer, with the plugin's name. Raises: PluginError (not a Status, or not allowed here)."""
    if not isinstance(answer, Status):
        raise PluginError(plugin, point, f"answered {type(answer).__name__}, expected a Status")
    if answer is SUCCESS:  # allowed at every point
        return answer
    if problem := bad_fields(answer):
        raise PluginError(plugin, point, problem)
    if answer.code is Code.ERROR:
        raise PluginError(plugin, point, answer.reason or "answered Error without a reason")
    if answer.code not in allowed:
        raise PluginError(plugin, point, f"answered {answer.code.value}, which means nothing here")
    if answer.plugin or answer.is_success:
        return answer
    return Status(answer.code, answer.reason, plugin, answer.timeout_s, because=answer.because)
