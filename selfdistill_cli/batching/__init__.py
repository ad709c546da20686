"""Floor 4: from trajectories to samples, and from samples to padded micro-batches."""
