"""Floor 4: what a run leaves behind: metrics, trajectories, W&B, and what a person sees."""
