"""Calling tools by their schemas: built-in tools with state, a user's own, or recorded calls."""
