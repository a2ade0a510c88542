"""`gangsched counterfactual`."""
