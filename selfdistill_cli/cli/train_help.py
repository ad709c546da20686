"""The text of `selfdistill train --help`: read from conf and from the settings' own docstrings."""

from __future__ import annotations

import textwrap

from selfdistill_cli.config import catalog
from selfdistill_cli.config.targets import find_settings_class
from selfdistill_cli.config.wording import field_documents
from selfdistill_cli.core.settings import Settings

OFTEN: tuple[tuple[str, str], ...] = (
    ("run.name", "training.settings.RunSettings"),
    ("run.root", "training.settings.RunSettings"),
    ("run.max_steps", "training.settings.RunSettings"),
    ("run.num_threads", "training.settings.RunSettings"),
    ("seed", "training.settings.TrainSettings"),
    ("method.group_size", "methods.settings.MethodSettings"),
    ("method.drop_flat_groups", "methods.settings.MethodSettings"),
    ("method.terms.NAME.coefficient", "methods.term_settings.PolicyGradientSettings"),
    ("batch.tasks_per_step", "batching.settings.BatchSettings"),
    ("optim.lr", "training.settings.ScheduleSettings"),
    ("policy.path", "policies.settings.HuggingFaceSettings"),
    ("policy.init_from", "policies.settings.HuggingFaceSettings"),
    ("policy.lora.rank", "policies.settings.LoraSettings"),
    ("teacher.hints", "teachers.settings.TeacherSettings"),
    ("env.data", "envs.settings.CodeEnvSettings"),
    ("rollout.max_new_tokens", "rollout.settings.InProcessSettings"),
    ("rollout.temperature", "rollout.settings.InProcessSettings"),
    ("eval.every", "training.settings.EvalSettings"),
    ("eval.panel", "training.settings.EvalSettings"),
    ("checkpoint.every", "training.settings.CheckpointSettings"),
    ("checkpoint.keep", "training.settings.CheckpointSettings"),
    ("launcher.jobs", "launching.settings.InlineSettings"),
    ("sweep.name", "sweeping.settings.SweepSettings"),
    ("sweep.metric", "sweeping.settings.SweepSettings"),
    ("sweep.on_failure", "sweeping.settings.SweepSettings"),
    ("resume.allow", "training.settings.ResumeSettings"),
    ("tracker.mode", "tracking.settings.WandbSettings"),
)
"""Keys that are used often, and the settings class whose docstring explains them."""

TEXT = """\
usage: selfdistill train [GROUP=OPTION ...] [KEY=VALUE ...] [flags]

Trains, or continues: the same command again goes on from the newest checkpoint.

groups (GROUP=OPTION):
{groups}

often used (KEY=VALUE):
{keys}

flags:
  --dry-run         print the resolved configuration and where each value comes from, touch nothing
  --config-dir DIR  a folder of your own that adds options; modules beside it can be named
  -m, --multirun    run every combination of KEY=A,B, each in a process of its own; the same command
                    again continues; sweep.* and launcher.jobs say how (docs/sweeps.md)
  --cfg job         print the configuration as Hydra composes it (--resolve: with references filled)
  --info            what Hydra knows about the configuration; --hydra-help: its other flags

examples:
  selfdistill train method=grpo env=code seed=1
  selfdistill train experiment=quick
  selfdistill train policy=hf policy.path=DIR optim=adamw_llm optim.lr=1e-6
  selfdistill train method=gear method/credit=uniform run.name=ablation
  selfdistill train -m method=gear,grpo seed=0,1,2
"""


def train_help(config_dir: str | None) -> str:
    """Compose the help text; options of `config_dir` are listed with the shipped ones."""
    folders = catalog.config_dirs(config_dir)
    groups = {
        name: ", ".join(catalog.options(folders, name))
        for name in catalog.groups(folders)
        if not name.startswith("hydra")
    }
    return TEXT.format(
        groups=_table(groups), keys=_table({key: _meaning(key, c) for key, c in OFTEN})
    )


def _meaning(key: str, class_path: str) -> str:
    settings_class = find_settings_class(f"selfdistill_cli.{class_path}", Settings)
    return field_documents(settings_class)[key.rpartition(".")[2]]


def _table(rows: dict[str, str]) -> str:
    width = max(map(len, rows))
    lines: list[str] = []
    for name, text in rows.items():
        first, *rest = textwrap.wrap(text, 98 - width - 4) or [""]
        lines.append(f"  {name:<{width}}  {first}")
        lines.extend(f"  {'':<{width}}  {line}" for line in rest)
    return "\n".join(lines)
