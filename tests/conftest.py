"""For all tests: no time limit on one example of hypothesis; a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
