"""Floor 4: environments: tasks, episodes and privileged hints."""
