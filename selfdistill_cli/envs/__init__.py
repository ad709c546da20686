"""Floor 4: environments: tasks, episodes and the privileged hints that they can give."""
