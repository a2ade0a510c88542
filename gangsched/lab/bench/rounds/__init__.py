"""The main job and the latency, measured on a real control plane from outside."""
