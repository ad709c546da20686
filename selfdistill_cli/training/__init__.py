"""Floor 5: the loop, the engine, checkpoints, evaluation; where the rooms meet."""
