"""What runs inside the sandbox: standard library only, nothing else is importable there."""
