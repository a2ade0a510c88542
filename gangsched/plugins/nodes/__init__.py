"""Plugins that ask what a node is: its name, labels, taints, ports, conditions and features."""
