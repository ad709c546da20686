"""`selfdistill plan`: how much memory, disk and time a run needs, before it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfdistill_cli.core.errors import ConfigError, UserError, did_you_mean

HELP = """\
usage: selfdistill plan [KEY=VALUE ...] [plan.KEY=VALUE ...] [--json] [--config-dir DIR]

Takes what `selfdistill train` takes and says what one rank needs, by part and by phase, which
values of zero fit, how large checkpoints are, and how long a step takes. Reads config.json, never
the weights. The formulas and how they were checked: docs/plan.md.

{keys}

examples:
  selfdistill plan
  selfdistill plan policy=qwen3_4b policy.path=DIR plan.gpus=8 plan.gpu_memory_gib=80
  selfdistill plan method=step_kd plan.calibration=RUN --json
"""
MIB, GIB = 1 << 20, 1 << 30
PREFIX = "plan."


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill plan`; return 0 if the run fits, else 1."""
    if "-h" in argv or "--help" in argv:
        print(HELP.format(keys=_documented()), end="")
        return 0
    words, typed, as_json, config_dir = parse(argv)

    from selfdistill_cli.config import rules
    from selfdistill_cli.config.checked import build
    from selfdistill_cli.config.compose import compose
    from selfdistill_cli.config.resolved import load_resolved
    from selfdistill_cli.training.planning.hardware import Hardware

    hardware = build(typed, Hardware, "plan")
    composed = compose(words, config_dir)
    rules.check(composed.settings)

    from selfdistill_cli.training.planning.plan import make_plan
    from selfdistill_cli.training.run_directory import find_run

    calibration = None
    if hardware.calibration is not None:
        directory = find_run(hardware.calibration, composed.settings.run.root)
        calibration = directory, load_resolved(directory / "config.yaml")
    zero = str(composed.choices.get("zero", "off"))
    device = getattr(composed.settings.zero, "device", "auto")
    found = make_plan(
        composed.settings, zero, hardware, calibration=calibration, on_gpu=device != "cpu"
    )
    if zero not in found.memories:
        raise ConfigError(
            f"zero: plan does not know '{zero}'; expected one of {', '.join(found.memories)}"
        )
    print(json.dumps(found.as_json(), indent=2) if as_json else "\n".join(lines(found)))
    return 0 if found.fits(zero) else 1


def parse(argv: Sequence[str]) -> tuple[list[str], dict[str, Any], bool, str | None]:
    """Return the overrides, plan.* by name, --json and --config-dir; raises UserError."""
    import yaml

    words: list[str] = []
    typed: dict[str, Any] = {}
    as_json, config_dir = False, None
    rest = iter(argv)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag == "--json" and not equals:
            as_json = True
        elif flag == "--config-dir":
            config_dir = value if equals else next(rest, None)
        elif word.startswith("-"):
            near = did_you_mean(flag, ["--json", "--config-dir", "--help"])
            raise UserError(f"there is no flag {flag}{near} (selfdistill plan --help lists them)")
        elif word.startswith(PREFIX):
            try:
                typed[flag.removeprefix(PREFIX)] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise UserError(f"{flag}: got '{value}', which cannot be read as YAML") from error
        else:
            words.append(word)
    return words, typed, as_json, config_dir


def _documented() -> str:
    from selfdistill_cli.config.wording import field_documents
    from selfdistill_cli.training.planning.hardware import Hardware

    documents = field_documents(Hardware)
    width = max(map(len, documents)) + len(PREFIX)
    return "\n".join(f"  {PREFIX + name:<{width}}  {text}" for name, text in documents.items())


def lines(plan: Any) -> Iterator[str]:
    """The plan for a person."""
    shape, needs, hardware = plan.shape, plan.needs, plan.hardware
    memory = plan.memories[plan.zero]
    yield (
        f"policy      {_count(shape.parameters)} parameters, {_count(shape.trained)} of them "
        f"trained, {shape.num_layers} layers, vocabulary {shape.vocabulary}"
    )
    yield (
        f"machines    {hardware.nodes} x {hardware.gpus} ranks with {hardware.gpu_memory_gib:g} "
        f"GiB each, {hardware.reserve_gib:g} GiB of it reserved"
    )
    yield (
        f"longest     {needs.length} tokens, {needs.micro_rows} in a micro-batch, "
        f"{needs.cached_rows} sampled at a time, {needs.episodes} episodes in a step of a rank"
    )
    yield ""
    yield f"one rank with zero={plan.zero}"
    yield from _parts(memory.static)
    for phase, parts in memory.phases.items():
        fullest = " <- the fullest phase" if phase == memory.fullest else ""
        yield f"  {phase:<21}{_size(sum(parts.values())):>10}{fullest}"
        yield from _parts(parts, "    ")
    yield f"  {'fragmentation':<21}{_size(memory.allowance):>10}"
    yield f"  {'peak':<21}{_size(memory.peak):>10}"
    yield ""
    yield f"{'zero':<15}{'one rank':>10}{'CPU, machine':>14}   "
    for name, found in plan.memories.items():
        cpu = sum(found.cpu.values()) * hardware.gpus
        verdict = "fits" if plan.fits(name) else "does not fit"
        yield f"{name:<15}{_size(found.peak):>10}{_size(cpu) if cpu else '-':>14}   {verdict}"
    yield ""
    yield f"checkpoint  {_size(plan.checkpoint)}, at most {_size(plan.disk)} on the disk at a time"
    yield from _time(plan.time)
    yield _advice(plan)


def _parts(parts: Mapping[str, float], indent: str = "  ") -> Iterator[str]:
    for name, value in parts.items():
        if value:
            yield f"{indent}{name:<{23 - len(indent)}}{_size(value):>10}"


def _time(time: Any) -> Iterator[str]:
    if time is None:
        yield "step time   unknown; plan.calibration=RUN scales what a finished run measured"
        return
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in time.phases.items())
    yield (
        f"step time   {time.seconds:.1f} s ({phases}), scaled from {time.measured:.1f} s of "
        f"{time.calibration} by parameters x tokens / ranks"
    )


def _advice(plan: Any) -> str:
    if plan.fits(plan.zero):
        return f"zero={plan.zero} fits"
    if plan.advice is not None:
        return f"zero={plan.zero} does not fit; zero={plan.advice} does"
    fullest = plan.memories[plan.zero].fullest
    return f"nothing fits: {REMEDIES[fullest]}, policy.lora.rank=16, more GPUs, or a smaller model"


REMEDIES = {
    "act": "lower rollout.max_batch_rows or rollout.max_context_tokens",
    "judge": "lower batch.micro_batch_tokens",
    "learn": "set policy.gradient_checkpointing=true, lower batch.micro_batch_tokens",
    "update": "use optim=adamw_8bit",
}


def _size(value: float) -> str:
    return f"{value / GIB:.2f} GiB" if value >= 0.1 * GIB else f"{value / MIB:.1f} MiB"


def _count(value: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return str(value)
