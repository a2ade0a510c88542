"""How Filter plugins are run: over all nodes at once, with what is kept between questions."""
