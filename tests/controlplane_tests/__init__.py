"""Fast tests of gangsched.controlplane: nothing is built or started here."""
