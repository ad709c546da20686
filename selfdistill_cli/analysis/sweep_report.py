"""`selfdistill sweep report DIR`: what a sweep found, as a page, pictures and CSV files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from selfdistill_cli.analysis.sweep_results import SweepResults, read_sweep
from selfdistill_cli.analysis.sweep_tables import cells_csv, notes, points_csv, sweep_tables
from selfdistill_cli.analysis.tables import Table
from selfdistill_cli.core.errors import UserError

FOLDER = "report"
STYLE = """
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid #ccc; padding: 0.2em 0.6em; text-align: left; }
caption, h2 { text-align: left; font-size: 1.05em; margin: 1.5em 0 0.4em; }
img { max-width: 100%; }
"""


def report(folder: Path, out: Path | None) -> list[Path]:
    """Write the report of the sweep in `folder` to `out`, by default `folder`/report.

    Works while cells are missing, failed or running. Returns the files. Raises DataError for a
    folder that holds no sweep and UserError if `out` cannot be written.
    """
    results = read_sweep(folder)
    out = out or folder / FOLDER
    try:
        out.mkdir(parents=True, exist_ok=True)
        pictures = _pictures(results, out)
        files = {
            out / "report.html": page(results, pictures),
            out / "points.csv": points_csv(results),
            out / "cells.csv": cells_csv(results),
        }
        for path, text in files.items():
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({error.strerror}); expected a folder that can be made and "
            "written to"
        ) from error
    return [*files, *pictures]


def page(results: SweepResults, pictures: Sequence[Path]) -> str:
    """One HTML page that needs no other file."""
    how = f"{results.how}, " if results.how else ""
    ways = [
        f"{metric} ({how}{'more' if up else 'less'} is better)"
        for metric, up in zip(results.metrics, results.maximize, strict=True)
    ]
    lines = "".join(f"<li>{escape(line)}</li>" for line in notes(results))
    images = "".join(
        f'<h2>{escape(path.stem)}</h2><img alt="{escape(path.stem)}" '
        f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    )
    tables = "".join(map(_table, sweep_tables(results)))
    name = escape(results.name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{STYLE}</style><h1>{name}</h1><p>{escape('; '.join(ways))}</p>"
        f"<ul>{lines}</ul>{tables}{images}</html>\n"
    )


def _pictures(results: SweepResults, out: Path) -> list[Path]:
    from selfdistill_cli.analysis.sweep_plots import draw_axes, draw_parallel

    pictures = {out / "parallel.png": draw_parallel, out / "axes.png": draw_axes}
    for path in pictures:
        path.unlink(missing_ok=True)  # of an earlier report
    if not results.ranked or not results.axes:
        return []
    for path, draw in pictures.items():
        draw(results, path)
    return list(pictures)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{rows}</table>"
