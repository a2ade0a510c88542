"""Tests of the pages: health, metrics, who may read them."""
