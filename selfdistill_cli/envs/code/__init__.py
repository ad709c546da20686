"""Small Python problems, solved by writing one function and graded by unit tests."""
