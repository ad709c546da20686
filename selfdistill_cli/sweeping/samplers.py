"""What chooses the values of a trial, and what gives trials up early, from the settings."""

from __future__ import annotations

import warnings

from optuna import pruners, samplers
from optuna.exceptions import ExperimentalWarning

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.sweeping.search_settings import NsgaSettings, SearchSettings, TpeSettings


def make_sampler(settings: SearchSettings, number: int) -> samplers.BaseSampler:
    """What chooses the values of trial `number`: the same ones after the same trials.

    Every trial has a sampler of its own, so there is no random state that a stop could lose.
    """
    seed = seed_for(settings.seed, "trial", number) % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # multivariate, before Optuna 5
        if isinstance(settings, TpeSettings):
            return samplers.TPESampler(
                n_startup_trials=settings.startup_trials,
                multivariate=settings.multivariate,
                constant_liar=settings.constant_liar,
                seed=seed,
            )
        if isinstance(settings, NsgaSettings):
            return samplers.NSGAIISampler(population_size=settings.population, seed=seed)
        return samplers.RandomSampler(seed=seed)


def make_pruner(settings: SearchSettings) -> pruners.BasePruner:
    """What gives trials up."""
    warmup, factor = settings.pruner_warmup_steps, settings.reduction_factor
    if settings.pruner == "median":
        return pruners.MedianPruner(settings.pruner_startup_trials, warmup)
    if settings.pruner == "halving":
        return pruners.SuccessiveHalvingPruner(max(1, warmup), reduction_factor=factor)
    if settings.pruner == "hyperband":
        return pruners.HyperbandPruner(max(1, warmup), reduction_factor=factor)
    return pruners.NopPruner()
