"""What the documentation says of methods is what the code has: names, defaults, commands."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from documents import (
    BLOCK,
    METHOD_PAGES,
    PAGES,
    ROOT,
    anchors,
    broken_links,
    commands,
    knobs,
    lookup,
    options,
    tables,
    ticked,
    words,
)

from selfdistill_cli.cli import (
    check,
    checkpoints,
    compare,
    doctor,
    eval,
    export,
    plan,
    resume,
    sweep,
    sync,
    validate,
    verify_resume,
)
from selfdistill_cli.cli.arguments import parse
from selfdistill_cli.config import axes, catalog, cells, rules
from selfdistill_cli.config.checked import build
from selfdistill_cli.config.compose import Composed, compose
from selfdistill_cli.config.resolved import changed
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.settings import Settings, ViewSettings
from selfdistill_cli.methods import (
    coefficient_settings,
    credit_settings,
    settings,
    term_settings,
)
from selfdistill_cli.teachers import settings as teacher_settings
from selfdistill_cli.training.planning.hardware import Hardware

CONF = ROOT / "conf"
RECIPES = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
GROUPS = [*sorted(f"method/{p.name}" for p in (CONF / "method").iterdir() if p.is_dir()), "teacher"]
COMMANDS = sorted({c for page in PAGES for c in commands(page.read_text(encoding="utf-8"))})
NEEDS_OWN_CODE = ("method/credit=mine", "my_parts/conf")
"""Commands with parts of the reader, which tests/testing runs."""
"""A command with this needs a Python module of the reader's."""


def pages() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in METHOD_PAGES)


@functools.cache
def composed(overrides: tuple[str, ...]) -> Composed:
    return compose(overrides)


def check_command(command: str, own: Path) -> None:
    """Raise unless a command is understood; a train command is composed and checked."""
    subcommand, *rest = words(command)
    if subcommand in ("train", "check"):
        if subcommand == "check":
            assert rest.pop(0) in check.CHECKS
        _check_train(rest, own)
    else:
        assert subcommand in READERS, f"there is no sub-command {subcommand}"
        READERS[subcommand](rest)


def _check_train(rest: list[str], own: Path) -> None:
    arguments = parse(rest)
    if arguments.multirun:
        space = axes.read_space(arguments.words, catalog.config_dirs(None))
        made = cells.Cells(space, None, arguments.config_name)
        first = made.check()
        first.settings.sweep.check(space)
        with tempfile.TemporaryDirectory() as folder:
            proposer = first.settings.sweep.build(space, {}, Path(folder))
            for planned in proposer.planned() or [proposer.next()]:
                rules.check(made.make(planned.values).settings)
    elif arguments.config_dir:
        rules.check(compose(arguments.words, str(own)).settings)
    elif not arguments.help:
        rules.check(composed(tuple(arguments.words)).settings)


def _check_compare(rest: list[str]) -> None:
    assert compare.parse(rest).runs


def _check_resume(rest: list[str]) -> None:
    runs, changes, _ = resume.parse(rest)
    assert len(runs) == 1
    changed(composed(()).container, changes)


def _check_verify_resume(rest: list[str]) -> None:
    verify_resume.num_steps([word for word in rest if word.startswith("steps=")])
    rules.check(composed(tuple(w for w in rest if not w.startswith("steps="))).settings)


def _check_plan(rest: list[str]) -> None:
    overrides, keys, _, _ = plan.parse(rest)
    assert build(keys, Hardware, "plan")
    composed(tuple(overrides))


READERS: dict[str, Callable[[list[str]], object]] = {
    "checkpoints": checkpoints.parse,
    "compare": _check_compare,
    "doctor": lambda rest: composed(tuple(doctor.parse(rest)[0])),
    "eval": eval.parse,
    "export": export.parse,
    "plan": _check_plan,
    "resume": _check_resume,
    "sweep": sweep.parse,
    "sync": sync.parse,
    "validate": lambda rest: composed(tuple(validate.parse(rest).words)),
    "verify-resume": _check_verify_resume,
}
"""How each sub-command reads its words; every one of them raises for a word that is wrong."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's folder: the YAML blocks of docs/methods.md that start with `# my_conf/PATH`.

    Beside it lie the reader's own problems and model, which the commands name.
    """
    (tmp_path / "my_problems.jsonl").touch()
    (tmp_path / "DIR").mkdir()
    monkeypatch.chdir(tmp_path)
    for language, block in BLOCK.findall(METHOD_PAGES[0].read_text(encoding="utf-8")):
        first = block.splitlines()[0]
        if language == "yaml" and first.startswith("# my_conf/"):
            path = tmp_path / first.removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
    return tmp_path / "my_conf"


def test_the_tables_of_recipes_name_every_recipe_and_their_true_parts() -> None:
    found = {}
    for table in tables(METHOD_PAGES[0].read_text(encoding="utf-8")):
        if table.header[:2] == ["`method=`", "source"]:
            found = {ticked(row[0])[0]: row[1:7] for row in table.rows}
    assert sorted(found) == RECIPES
    for name, parts in found.items():
        choices = composed((f"method={name}",)).choices
        names = ("source", "advantage", "credit", "terms", "sync")
        true = [choices[f"method/{part}"] for part in names] + [choices["teacher"]]
        assert parts == true, name


def test_every_recipe_has_a_section_and_a_row_in_the_readme() -> None:
    headings = [h for page in METHOD_PAGES[1:] for h in anchors(page.read_text(encoding="utf-8"))]
    assert [name for name in RECIPES if headings.count(name) != 1] == []
    readme = ticked((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [name for name in RECIPES if name not in readme] == []


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_is_in_a_table_with_the_keys_of_its_file(group: str) -> None:
    documented = [pair for t in tables(pages()) if (pair := options(t)) and pair[0] == group]
    assert len(documented) == 1, f"one table headed `{group}=`"
    found = documented[0][1]
    assert sorted(found) == catalog.options([CONF], group)
    if group in ("method/credit", "method/terms"):  # their keys are knobs of recipes
        return
    for name, keys in found.items():
        file = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
        true = {k: v for k, v in file.items() if k not in ("_target_", "defaults", "path")}
        assert keys == {k: ... if keys.get(k) is ... else v for k, v in true.items()}, name


def test_every_default_in_a_table_of_knobs_is_the_one_of_the_recipe() -> None:
    found = [pair for table in tables(pages()) if (pair := knobs(table))]
    assert len(found) > len(RECIPES)
    for overrides, pairs in found:
        values = composed(tuple(overrides)).container
        for key, default in pairs:
            if isinstance(default, str) and "." in default:  # the name of another key
                default = lookup(values, default)
            assert lookup(values, key) == default, f"{overrides} {key}"


def test_every_settings_field_of_the_parts_is_explained() -> None:
    named = {part for word in ticked(pages()) for part in word.partition("=")[0].split(".")}
    modules = (settings, credit_settings, term_settings, coefficient_settings, teacher_settings)
    classes = [
        x for module in modules for x in vars(module).values()
        if isinstance(x, type) and issubclass(x, Settings) and x.__module__ == module.__name__
    ]  # fmt: skip
    assert len(classes) > 30
    classes.append(ViewSettings)
    fields = {f"{c.__name__}.{f.name}" for c in classes for f in dataclasses.fields(c)}
    missing = {name for name in fields if name.partition(".")[2] not in named}
    assert missing == {"MethodSettings.name"} - named


UNDERSTOOD = [c for c in COMMANDS if not any(own in c for own in NEEDS_OWN_CODE)]


@pytest.mark.parametrize("command", UNDERSTOOD)
def test_every_command_is_understood(command: str, own: Path) -> None:
    check_command(command, own)


def test_every_recipe_has_a_command_that_is_checked() -> None:
    choices = {word for command in COMMANDS for word in words(command)}
    assert [name for name in RECIPES if f"method={name}" not in choices] == []


@pytest.mark.parametrize(
    "command",
    [
        "selfdistill train method=gear method.credit.temprature=2",
        "selfdistill train method=grpo method/terms=distill   # no teacher",
        "selfdistill train -m method=gear,gaer",
        "selfdistill train method=sdpo method/coefficient@method.terms.distill.coefficient=linear",
    ],
)
def test_a_wrong_command_is_found(command: str, own: Path) -> None:
    with pytest.raises(ConfigError):
        check_command(command, own)


def test_links_lead_somewhere() -> None:
    broken = {
        page.name: found
        for page in PAGES
        if (found := broken_links(page, page.read_text(encoding="utf-8")))
    }
    assert broken == {}
    page = ROOT / "docs/methods.md"
    assert broken_links(page, "[a](nowhere.md) [b](methods/gear.md#grpo) [c](#recipes)") == [
        "nowhere.md",
        "methods/gear.md#grpo",
    ]


def test_tables_of_knobs_are_read_with_their_defaults() -> None:
    text = (
        "| knob (`method=gear` `method.credit.`) | default | effect |\n|---|---|---|\n"
        "| `clip_low`, `clip_high` | 3e-4, null | bounds |\n| `hints` | [a, b] | a list |\n"
    )
    expected = [("clip_low", 3e-4), ("clip_high", None), ("hints", ["a", "b"])]
    (table,) = tables(text)
    assert knobs(table) == (["method=gear"], [(f"method.credit.{k}", v) for k, v in expected])
