"""Floor 3: the simulator: seeded clock, event heap, faults and checkers; asyncio in `wire` alone."""
