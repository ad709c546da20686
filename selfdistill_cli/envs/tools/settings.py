"""Settings of the tools environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError, did_you_mean
from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.agents.settings import AgentSettings
from selfdistill_cli.envs.json_lines import FileKind
from selfdistill_cli.envs.splitting import check_shares

TEMPLATE_CALLS: dict[str, int] = {
    "remember": 1, "write_note": 1, "remove_file": 1, "book": 1, "reschedule": 1, "look_up": 1,
    "read_out": 1, "agenda": 1, "compute": 2, "copy_to_file": 2, "book_free": 2,
    "cancel_noted": 2, "file_away": 2, "classify": 2, "longer": 2, "convert_noted": 3,
    "rename_key": 3, "clear_day": 3, "move_and_log": 3, "add_files": 4, "swap_keys": 4,
    "invoice": 5,
}  # fmt: skip
"""Names of the built-in kinds of tasks, and how many calls each needs before the last one."""
TASKS = FileKind(
    key="env.data",
    file="a .jsonl or .jsonl.gz file of tasks for env.tools",
    noun="task",
    record='an object with "prompt"',
)
PANEL = "bfcl:"
PANELS = ("simple", "multiple", "parallel", "parallel_multiple", "irrelevance")
"""Names after bfcl: in `data`; `bfcl_NAME` is a split of its own with all tasks of the panel."""


@dataclass(frozen=True, kw_only=True)
class ToolsEnvSettings(AgentSettings):
    """Call tools by their schemas until the state is what the request asks for."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.tools.env:ToolsEnv"

    tools: str | None
    """The user's own tools: FILE.py (functions with type hints and docstrings, which run in this
    process) or FILE.json (a list of schemas; calls are compared, nothing runs); null: built in."""
    data: str | None
    """Tasks (.jsonl or .jsonl.gz) for `tools`, or bfcl:simple, bfcl:multiple, bfcl:parallel,
    bfcl:parallel_multiple, bfcl:irrelevance (needs the package bfcl_eval); null: built in."""
    validation_fraction: float
    """Share of `data` for validation, by a hash of the task id; unused where it names splits."""
    test_fraction: float
    """Share of `data` for the final test, chosen like the validation share."""
    train_tasks: int
    """Built-in tasks of the split train."""
    other_tasks: int
    """Built-in tasks of each other split."""
    templates: list[str] | None
    """Kinds of built-in tasks, or null for all."""
    max_calls: int
    """Leave out kinds that need more calls than this (1 to 5), the last one not counted."""
    extra_tools: int
    """Tools that a built-in task offers beside those that it needs."""
    num_choices: int
    """Calls in the list of a built-in task, where admissible calls are shown."""
    decoys: Literal["same_kind", "other_kinds"]
    """Requests that the wrong calls in the list belong to: of the task's own kind, so that names
    and values tell which is right, or of kinds that take other tools, so that the tools tell."""
    prompt_skills: str | None
    """Skills in the prompt: builtin, a JSON file, or null for none. The hint `pruned` takes the
    general ones away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self)
        in_range(self, 1, 1_000_000, "train_tasks", "other_tasks")
        in_range(self, 1, 5, "max_calls")
        in_range(self, 0, 16, "extra_tools")
        in_range(self, 4, 12, "num_choices")
        self._check_templates()
        self._check_files()

    def problem_with_data(self) -> str | None:
        """Return why `data` cannot be read, found without reading it, or None."""
        if self.data is None or self.data.startswith(PANEL):
            return None
        return TASKS.problem(self.data)

    def _check_templates(self) -> None:
        for name in self.templates or ():
            if name not in TEMPLATE_CALLS:
                near = did_you_mean(name, TEMPLATE_CALLS)
                raise FieldError("templates", name, f"some of {', '.join(TEMPLATE_CALLS)}{near}")
        names = self.templates or TEMPLATE_CALLS
        if not any(TEMPLATE_CALLS[name] <= self.max_calls for name in names):
            least = min(TEMPLATE_CALLS[name] for name in names)
            raise FieldError("max_calls", self.max_calls, f"at least {least} for env.templates")

    def _check_files(self) -> None:
        data, tools = self.data, self.tools
        if tools is not None and not tools.endswith((".py", ".json")):
            raise FieldError("tools", f"'{tools}'", "FILE.py, FILE.json, or null for built-in ones")
        panel = data is not None and data.startswith(PANEL)
        if data is not None and panel and (name := data.removeprefix(PANEL)) not in PANELS:
            near = did_you_mean(name, PANELS)
            raise FieldError("data", f"'{data}'", f"{PANEL} and one of {', '.join(PANELS)}{near}")
        if tools is not None and (data is None or panel):
            raise FieldError("data", data or "null", "a file of tasks for env.tools")
        if tools is None and data is not None and not panel:
            names = f"null for the built-in tasks, {PANEL}simple, or a file together with env.tools"
            raise FieldError("data", f"'{data}'", names)
