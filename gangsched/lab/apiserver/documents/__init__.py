"""Documents about the API itself: versions, discovery, OpenAPI."""
