"""Functions that expressions may call: a module for each of CEL's and Kubernetes' libraries.

Nothing here knows of expressions or devices. A function may be called with anything; what it does not take,
or cannot do, is a Fault.
"""
