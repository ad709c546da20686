"""Deep search over a local corpus: search, open pages, answer."""
