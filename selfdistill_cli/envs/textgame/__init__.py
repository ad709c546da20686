"""Text games: small built-in ones made by seed, and adapters for games of other packages."""
