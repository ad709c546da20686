"""Floor 5: statistics of results."""
