"""Floor 3: formulas as pure functions, tensors in and tensors out.

Shapes are named by suffix: B rows, T tokens, N selected tokens, H hidden size, V vocabulary.
Values at inactive positions are never read, so they may be nan; results there are 0 (weights: 1).
"""
