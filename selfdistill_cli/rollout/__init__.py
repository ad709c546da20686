"""Floor 4: sampling tokens and playing episodes."""
