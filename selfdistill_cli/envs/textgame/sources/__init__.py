"""Games of other packages; each package is imported when its games are asked for."""
