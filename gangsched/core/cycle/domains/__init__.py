"""Groups that must, or should, be in one rack, zone or block."""
