"""What run directories say when they are read side by side."""
