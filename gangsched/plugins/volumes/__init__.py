"""Plugins that ask where a pod's volumes are, may be made, and can be attached."""
