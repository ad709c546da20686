"""Sweeps: many runs from one command line, each in a process of its own, and a ledger of them."""
