"""Answers of the counterfactual: compared, in words, and as a picture."""
