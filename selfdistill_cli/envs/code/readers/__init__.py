"""One module per form of tasks: a line of a file becomes a prompt, a reference and tests."""
