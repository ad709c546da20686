"""Floor 4: the weights that score views other than the student's own."""
