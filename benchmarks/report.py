"""The report of a run: ``report.md``, ``report.html`` with plots, and ``report.json`` with every run, in one folder."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.bars import REFERENCE, UNITS, Judgement, Results, Verdict, figure
from benchmarks.plots import Curves, Ratios, curve_plot, number, ratio_plot

_PACKAGES = ("cm-delta-dagster", "pyspark", "deltalake", "pyarrow", "numpy", "sqlalchemy", "duckdb", "polars")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 1120px; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d9dfe6; padding-bottom: .2rem }
table { border-collapse: collapse; font-size: 13px; margin: .8rem 0 }
th, td { padding: .25rem .6rem; text-align: left; white-space: nowrap }
td:nth-child(3) { white-space: normal }
th { background: #f1f4f8 } tr + tr td { border-top: 1px solid #e6eaef } td.n { text-align: right }
.missed { color: #b3261e; font-weight: 600 } .met { color: #1f7a44 } .open { color: #6b7785 }
svg { font: 12px system-ui, sans-serif; max-width: 100%; height: auto; overflow: visible } svg text { fill: #33404d }
svg .task { font-weight: 600 }
svg .axis { fill: #6b7785 } svg .grid { stroke: #e3e8ee } svg .one { stroke: #1668b8; stroke-width: 1.5 }
figure { margin: 1rem 0 } figcaption { color: #55616e } .curves { display: flex; flex-wrap: wrap; gap: 1rem 2rem }
p { max-width: 46rem }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Tasks that do the same at several sizes: pairs of size and task, by the name of the line; '' for the engine alone."""

    title: str
    axis: str
    lines: Mapping[str, Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run measured, and where."""

    environment: Mapping[str, str]
    options: Mapping[str, Any]
    results: Results
    judgements: Sequence[Judgement]
    growth: Sequence[Growth]


def environment() -> dict[str, str]:
    """The machine and the versions."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.platform(),
        "processor": cpu or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "load before the run": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "Python": platform.python_version(),
        **dict(_versions()),
        "Java": _first_line("java", "-version"),
        "commit": _first_line("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--tags"),
    }


def write(run: Run, folder: Path) -> None:
    """Write the three files of the report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(markdown(run))
    (folder / "report.html").write_text(html(run))
    (folder / "report.json").write_text(json.dumps(_raw(run), indent=1) + "\n")


def missed(run: Run) -> list[str]:
    """A line for each bar that the run missed."""
    return [
        f"missed: {found.bar.task}, {found.bar.statistic}: {number(found.measured)} {_against(found)}, at most {found.bar.bound:g}"
        for found in run.judgements
        if found.verdict is Verdict.MISSED and found.measured is not None
    ]


def markdown(run: Run) -> str:
    """The report without plots."""
    return "\n".join(
        (
            "# Benchmark report", "", _summary(run), "",
            "## Bars", "", *_markdown_table(_BAR_HEADINGS, map(_bar_cells, _judged_first(run))), "",
            "## Times", "", _EXPLANATION, "", *_markdown_table(_TIME_HEADINGS, _time_cells(run.results)), "",
            "## Environment", "", *_markdown_table(("what", "value"), run.environment.items()), "",
            "Options: `" + json.dumps(dict(run.options)) + "`. Every run is in `report.json`.", "",
        )
    )  # fmt: skip


def html(run: Run) -> str:
    """The report as one page that loads nothing."""
    curves = [(growth, curve_plot(_curves(growth, run.results), x_label=growth.axis)) for growth in run.growth]
    figures = "".join(
        f"<figure>{plot}<figcaption>{escape(growth.title)}</figcaption></figure>" for growth, plot in curves if plot
    )
    ratios = ratio_plot(_ratios(run.results)) or "<p>No task has run with another engine.</p>"
    parts = (
        "<h1>Benchmark report</h1>", f"<p>{escape(_summary(run))}</p>",
        "<h2>Bars</h2>", _html_table(_BAR_HEADINGS, map(_bar_cells, _judged_first(run))),
        "<h2>Ratios to this package</h2>",
        "<p>Median wall time of each engine divided by ours; right of the line at 1 the engine is slower than this package.</p>",
        f"<figure>{ratios}</figure>",
        *(("<h2>Growth</h2>", f'<div class="curves">{figures}</div>') if figures else ()),
        "<h2>Times</h2>", f"<p>{escape(_EXPLANATION)}</p>", _html_table(_TIME_HEADINGS, _time_cells(run.results)),
        "<h2>Environment</h2>", _html_table(("what", "value"), run.environment.items()),
        f"<p>Options: <code>{escape(json.dumps(dict(run.options)))}</code></p>",
        '<script type="application/json" id="raw">' + json.dumps(_raw(run)).replace("</", "<\\/") + "</script>",
    )  # fmt: skip
    head = f'<meta charset="utf-8"><title>Benchmark report</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


_BAR_HEADINGS = ("verdict", "task", "what", "statistic", "compared with", "measured", "at most")
_TIME_HEADINGS = ("task", "engine", "runs", "wall min s", "wall median s", "x ours", "cpu min s", "x ours")
_EXPLANATION = "Seconds, and the same divided by ours: above 1 the engine is slower than this package."


def _summary(run: Run) -> str:
    counts = {verdict: sum(found.verdict is verdict for found in run.judgements) for verdict in Verdict}
    return "Bars: " + ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()) + "."


def _judged_first(run: Run) -> list[Judgement]:
    order = (Verdict.MISSED, Verdict.MET, Verdict.TOO_SMALL, Verdict.NOT_RUN)
    return sorted(run.judgements, key=lambda found: order.index(found.verdict))


def _against(found: Judgement) -> str:
    bar = found.bar
    if bar.engine in UNITS:
        return bar.engine
    other = f" {bar.of_task}" if bar.of_task != bar.task else ""
    return f"times {bar.engine}{other}"


def _bar_cells(found: Judgement) -> tuple[str, ...]:
    bar = found.bar
    measured = "" if found.measured is None else number(found.measured)
    size = f" (from {bar.size} on)" if found.verdict is Verdict.TOO_SMALL else ""
    against = _against(found).removeprefix("times ")
    return found.verdict.value, bar.task, bar.what + size, bar.statistic, against, measured, f"{bar.bound:g}"


def _time_cells(results: Results) -> Iterator[tuple[str, ...]]:
    for task, engines in results.items():
        for engine, runs in engines.items():
            cells = [task, engine, str(len(runs))]
            for statistic in ("wall min", "wall median", "cpu min"):
                mine, base = figure(results, task, engine, statistic), figure(results, task, REFERENCE, statistic)
                if mine is None:
                    break
                cells.append(f"{mine:.4f}" if mine < 0.1 else f"{mine:.3f}")
                if statistic != "wall min":
                    cells.append(f"{mine / base:.2f}" if base else "-")
            if len(cells) == len(_TIME_HEADINGS):
                yield tuple(cells)


def _ratios(results: Results) -> Ratios:
    found = []
    for task, engines in results.items():
        base = figure(results, task, REFERENCE, "wall median")
        others = [engine for engine in engines if engine != REFERENCE]
        times = [(engine, figure(results, task, engine, "wall median")) for engine in others]
        ratios = [(engine, time / base) for engine, time in times if base and time]
        if ratios:
            found.append((task, ratios))
    return found


def _curves(growth: Growth, results: Results) -> Curves:
    lines: dict[str, list[tuple[float, float]]] = {}
    for suffix, sizes in growth.lines.items():
        engines = dict.fromkeys(engine for _, task in sizes for engine in results.get(task, {}))
        for engine in engines:
            times = [(size, figure(results, task, engine, "wall median")) for size, task in sizes]
            points = [(float(size), time) for size, time in times if time]
            if len(points) > 1:
                lines[f"{engine} ({suffix})" if suffix else engine] = points
    return lines


def _raw(run: Run) -> dict[str, Any]:
    return {
        "environment": dict(run.environment),
        "options": dict(run.options),
        "bars": [found.as_json() for found in run.judgements],
        "medians": {
            task: {engine: statistics.median(each["wall"] for each in runs) for engine, runs in engines.items() if runs}
            for task, engines in run.results.items()
        },
        "results": run.results,
    }


def _markdown_table(headings: Sequence[str], rows: Any) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]


def _html_table(headings: Sequence[str], rows: Any) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _html_cell(value: str) -> str:
    if value in (Verdict.MET, Verdict.MISSED):
        return f'<td class="{value}">{value}</td>'
    if value in (Verdict.NOT_RUN, Verdict.TOO_SMALL):
        return f'<td class="open">{value}</td>'
    is_number = value.replace(".", "").replace(",", "").isdigit()
    return f'<td class="n">{value}</td>' if is_number else f"<td>{escape(value)}</td>"


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return "not found"
    return next(iter((done.stdout or done.stderr).splitlines()), "unknown") if done.returncode == 0 else "unknown"


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []
