"""The simulated nodes and controllers, in virtual time."""
