"""Floor 6: from YAML and the command line to checked settings."""
