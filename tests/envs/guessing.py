"""A small environment with gymnasium's interface, as a user would bring it."""

from __future__ import annotations

import random


class Guessing:
    """Guess a number from 1 to 8; it draws from the global generator, as many games do."""

    def __init__(self, turns: int = 4, tells_success: bool = True, text: bool = True):
        self.turns, self.tells, self.text = turns, tells_success, text
        self.closed = False

    def reset(self, seed=None):
        if seed is not None:
            random.seed(seed)
        self.number, self.left = random.randint(1, 8), self.turns
        return "Guess from 1 to 8." if self.text else [0.0], {"valid_actions": list("12345678")}

    def step(self, action):
        self.left -= 1
        right = action == str(self.number)
        random.random()
        info = {"success": right} if self.tells else {}
        said = "yes" if right else f"no, {self.left} left, dice {random.randint(1, 1000)}"
        return said, float(right), right, self.left == 0, info

    def close(self):
        self.closed = True


def make(**arguments):
    return Guessing(**arguments)
