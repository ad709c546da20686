"""Questions with one checkable answer: built-in arithmetic, reasoning-gym, JSON lines."""
