"""`gangsched doctor`: checks an installation from outside, by the API server's objects; changes nothing."""
