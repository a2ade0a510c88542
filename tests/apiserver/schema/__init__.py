"""Tests of schemas and what is done with them."""
