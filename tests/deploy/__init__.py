"""Tests of what is put into a cluster: the kustomize base, its rights, the image."""
