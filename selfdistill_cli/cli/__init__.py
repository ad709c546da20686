"""Floor 7: argv, sub-commands, exit codes, what a person sees."""
