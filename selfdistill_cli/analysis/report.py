"""The files of a comparison and where they lie."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.analysis.comparison import Comparison
from selfdistill_cli.analysis.tables import as_csv, as_json, as_markdown
from selfdistill_cli.core.errors import UserError

LONGEST_NAME = 40


def default_folder(root: str, comparison: Comparison) -> Path:
    """`<root>/compare/<methods>_<hash of the runs>`: the same runs, the same folder."""
    methods = dict.fromkeys(result.label.split()[0] for result in comparison.results)
    name = re.sub(r"[^\w.-]", "_", "-".join(methods))[:LONGEST_NAME]
    runs = "\n".join(sorted(run for result in comparison.results for run in result.runs))
    return Path(root) / "compare" / f"{name}_{hashlib.sha256(runs.encode()).hexdigest()[:6]}"


def write_report(comparison: Comparison, folder: Path) -> Sequence[Path]:
    """Write Markdown, JSON, CSV and the curves; raises UserError if the folder cannot be used."""
    from selfdistill_cli.analysis.plots import draw_curves

    files = {
        folder / "compare.md": as_markdown(comparison),
        folder / "compare.json": as_json(comparison),
        folder / "compare.csv": as_csv(comparison),
    }
    picture = folder / "curves.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        draw_curves(comparison, picture)
    except OSError as error:
        raise UserError(
            f"--out: {folder} cannot be written ({error.strerror}); "
            "expected a folder that can be made and written to"
        ) from error
    return [*files, picture]
