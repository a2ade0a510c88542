"""Requests and answers: paths, bodies, content negotiation, watches."""
