"""Tests of gangsched.telemetry: traces in memory, exporters, the terminal's waterfall."""
