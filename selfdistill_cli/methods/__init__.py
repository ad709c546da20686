"""Floor 4: methods as recipes of six parts: source, views, advantage, credit, terms, sync."""
