"""The code environment: write a function, be judged by tests in a sandbox."""
