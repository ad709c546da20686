"""Adapters for environments of other packages that speak text."""
