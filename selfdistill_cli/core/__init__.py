"""Floor 2: types, protocols, settings, errors and seeds. Imports no torch."""
