"""Environments of the package verifiers, played turn by turn."""
