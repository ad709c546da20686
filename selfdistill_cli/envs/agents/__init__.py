"""What agents with several turns share: actions, their formats, and the episode round a world."""
