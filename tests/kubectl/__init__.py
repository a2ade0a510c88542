"""The real kubectl against the embedded API server; where there is something to compare, against a real one too."""
