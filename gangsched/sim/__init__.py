"""Floor 3: the simulator: seeded clock, event heap, faults and checkers; no asyncio here."""
