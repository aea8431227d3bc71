"""A run: the scenario, the agents started apart, the markers, and the raw evidence left in a run directory."""
