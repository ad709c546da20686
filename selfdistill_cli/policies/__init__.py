"""Floor 4: causal language models that are trained, their chat templates and adapters."""
