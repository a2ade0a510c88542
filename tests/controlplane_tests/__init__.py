"""Fast tests of gangsched.lab.controlplane: nothing is built or started here."""
