"""Which devices claims get: what may serve each request, and the search among it."""
