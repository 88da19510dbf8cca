"""A report as one HTML file: no script, nothing loaded from elsewhere, light and dark."""

from __future__ import annotations

from html import escape

from ttsbatch.report_views import Part, Values, key_figures, parts

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #2a7f9e; --dim: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0; }
p { color: var(--dim); margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.5rem; }
dt { color: var(--dim); }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; }
td.bar { width: 25%; }
td.bar span { display: block; height: .7rem; background: var(--bar); border-radius: 2px; }
"""


def html(values: Values, title: str) -> str:
    """The page.

    Args:
        values: of report.json.
        title: the run's name; any text.
    """
    figures = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in key_figures(values)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: run report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Run report</h1>\n<p>{escape(title)}</p>\n<dl>\n{figures}</dl>\n"
        + "".join(_section(part) for part in parts(values))
        + "</body>\n</html>\n"
    )


def _section(part: Part) -> str:
    note = f"<p>{escape(part.note)}</p>\n" if part.note else ""
    heads = "".join(f"<th>{escape(h)}</th>" for h in part.heads) + (
        "<th></th>" if part.bars else ""
    )
    rows = []
    for n, row in enumerate(part.rows):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        if part.bars:
            width = f"{100 * part.bars[n]:.1f}%"
            cells += f'<td class="bar"><span style="width: {width}"></span></td>'
        rows.append(f"<tr>{cells}</tr>\n")
    return (
        f'<h2>{escape(part.title)}</h2>\n{note}<div class="scroll"><table>\n<tr>{heads}</tr>\n'
        + "".join(rows)
        + "</table></div>\n"
    )
