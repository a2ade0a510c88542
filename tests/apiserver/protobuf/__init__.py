"""Protobuf bodies: what Go programs send, read as the JSON of the same object."""
