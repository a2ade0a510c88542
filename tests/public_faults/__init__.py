"""Faults of other schedulers and drivers that their users have reported, each as a scenario of gangsched."""
