"""One table of all policies, and the same as a picture.

Invariant: a cell is the worst over its workloads and tokenizers, or a count of them, never a mean that hides one; what
was not measured is empty. Not for: measuring. A picture by a plotting library was rejected: the benchmark would need it
to draw forty bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.small_windows.metrics import Row

HEADINGS = (
    "policy", "window", "fits (M1)", "request/W", "tail/W (M2)", "sum+tail/U", "least freed (M3)",
    "passes/100 turns (M4)", "breaks", "reuse (M6)", "structure (M10)",
)


def summarised(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One line a policy and window; S7b, which nobody can fit, is counted apart."""
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows):
        for window in sorted({row.window for row in rows}):
            mine = [row for row in rows if (row.policy, row.window) == (policy, window)]
            able = [row for row in mine if row.usable >= 512]
            replays = [row for row in mine if row.requests]
            passed = [row for row in able if row.reclaimed]
            if not able:
                continue
            lines.append({
                "policy": policy, "window": window, "cases": len(able), "fits": sum(_fits(row) for row in able),
                "request_share": max(row.request / window for row in able),
                "tail_share": max((row.tail / window for row in passed), default=None),
                "summary_tail_share": max(((row.summary + row.tail) / row.usable for row in passed), default=None),
                "least_freed": min((freed for row in able for freed in row.reclaimed), default=None),
                "passes_per_100_turns": max((100 * len(row.reclaimed) / row.turns for row in replays), default=None),
                "passes": sum(len(row.reclaimed) for row in replays), "breaks": sum(row.breaks for row in replays),
                "reuse": min((row.reuse for row in replays if row.reuse is not None), default=None),
                "unsound": sum(bool(row.faults) for row in able),
            })
    return lines


def _fits(row: Row) -> bool:
    """A replay fits when every one of its requests did."""
    return row.fits and row.fitted == row.requests


def text(lines: Iterable[dict[str, Any]]) -> str:
    """The table for people, in Markdown."""
    cells = [HEADINGS, tuple("---" for _ in HEADINGS)]
    for line in lines:
        cells.append((
            line["policy"], f"{line['window']:,}", f"{line['fits']} of {line['cases']}", _share(line["request_share"]),
            _share(line["tail_share"]), _share(line["summary_tail_share"]), _whole(line["least_freed"]),
            "" if line["passes_per_100_turns"] is None else f"{line['passes_per_100_turns']:.1f}",
            "" if line["passes_per_100_turns"] is None else f"{line['breaks']} of {line['passes']}",
            "" if line["reuse"] is None else f"{line['reuse']:.3f}",
            "sound" if not line["unsound"] else f"{line['unsound']} unsound",
        ))
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


_COLOURS = ("#888888", "#c0504d", "#e08a3c", "#b8a03a", "#8064a2", "#4bacc6", "#2e7d32", "#7cb342")
_TITLE = "Cases of which the next request fits, of 100, by window"


def picture(lines: Sequence[dict[str, Any]]) -> str:
    """SVG: for each window one bar a policy, its height the share of cases that fit after two passes."""
    windows = sorted({line["window"] for line in lines})
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    bar, gap, high, left, top = 14, 26, 220, 48, 40
    wide = len(policies) * bar + gap
    full = left + len(windows) * wide + 190
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full}" height="{high + top + 46}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="22" font-size="14">{_TITLE}</text>',
    ]
    for share in (0, 25, 50, 75, 100):
        y = top + high - high * share // 100
        out.append(f'<line x1="{left}" x2="{full - 180}" y1="{y}" y2="{y}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{share}</text>')
    for column, window in enumerate(windows):
        x = left + column * wide
        out.append(f'<text x="{x + wide / 2 - gap / 2}" y="{top + high + 20}" text-anchor="middle">{window:,}</text>')
        for number, policy in enumerate(policies):
            found = [line for line in lines if (line["policy"], line["window"]) == (policy, window)]
            share = found[0]["fits"] / found[0]["cases"] if found else 0.0
            tall = max(1.0, high * share)
            colour = _COLOURS[number % len(_COLOURS)]
            title = f"<title>{policy}, {window:,}: {100 * share:.0f} %</title>"
            out.append(
                f'<rect x="{x + number * bar}" y="{top + high - tall:.1f}" width="{bar - 2}" height="{tall:.1f}" '
                f'fill="{colour}">{title}</rect>'
            )
    for number, policy in enumerate(policies):
        y = top + 14 + number * 20
        out.append(f'<rect x="{full - 170}" y="{y - 10}" width="12" height="12" fill="{_COLOURS[number % 8]}"/>')
        out.append(f'<text x="{full - 152}" y="{y}">{policy}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
