"""Floor 3: isolated execution of programs that nobody has read."""
