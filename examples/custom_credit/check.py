"""Check both parts: python examples/custom_credit/check.py"""

from early_tokens import EarlyTokensSettings
from short_programs import ShortProgramsSettings

from selfdistill_cli.testing import check_credit, check_reward

if __name__ == "__main__":
    outcome = {"passed": 1, "total": 2, "program": "def f(xs):\n    return xs"}
    check_credit(EarlyTokensSettings(strength=0.5, decay=0.9).build)
    check_reward(ShortProgramsSettings(price=0.001, most=0.2).build, outcomes=[outcome])
    print("both parts keep their promises")
