"""What the Node states of its devices: merged from the sources, as far as it fits."""
