"""Arrays: the NumPy types that the core and its plugins pass around, and the number that means no limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NO_LIMIT = 2**62
"""Means no limit in an IntArray of how many pods fit; MAX_VALUE of model.text.quantity can be added in
int64.
"""
