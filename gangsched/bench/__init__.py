"""Floor 3: measurements of gangsched and its neighbours on one machine."""
