"""The simulated nodes: their kubelets, devices, and what they report."""
