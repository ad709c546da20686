"""Floor 4: rewards: from an outcome to a score."""
