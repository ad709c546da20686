"""What a run will need, computed before it starts: memory by part, disk, time."""
