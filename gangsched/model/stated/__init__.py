"""What annotations of pods and nodes state in numbers: load, bandwidth, topology, packing."""
