"""Plugins that ask what a node has left: resources, devices, images, load and bandwidth."""
