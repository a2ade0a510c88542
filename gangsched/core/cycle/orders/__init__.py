"""In which order members are placed, and the search through further orders."""
