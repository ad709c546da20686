"""Floor 6: what starts the processes of a run."""
