"""gangsched: all-or-nothing scheduling of pod groups, with device IDs, for Kubernetes.

Lives here: the version only. Each sub-package's docstring states what belongs there.
"""

__version__ = "0.2.0"
