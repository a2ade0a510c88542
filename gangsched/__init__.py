"""gangsched: all-or-nothing scheduling of pod groups, with device IDs, for Kubernetes.

What lives here: the version only. Each sub-package says in its own docstring what belongs there.
"""

__version__ = "0.1.0"
