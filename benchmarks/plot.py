"""One picture: how an append grows with the session, what eight writers get done, what reading costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "takeback", "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False})
matplotlib.rcParams["axes.spines.right"] = False

from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.container import BarContainer  # noqa: E402

from .common import show_time  # noqa: E402

_COLOURS = {
    "limit": "#8a8f98",
    "baseline": "#8a8f98",
    "Takeback": "#0b6e4f",
    "OpenAI": "#c1666b",
    "LangGraph": "#d4a017",
    "Google ADK": "#3b6ea8",
    "agno": "#8e5ea2",
    "whole-JSON": "#6b4f3a",
}


def draw(path: Path, data: dict[str, dict[str, Any]]) -> None:
    """Draw the panels into an SVG that holds no date and no path."""
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    _appends(axes[0], data["p1"])
    _writers(axes[1], data["p2"])
    _reads(axes[2], data["p4"])
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _appends(axes: Axes, found: dict[str, dict[int, float]]) -> None:
    sizes = sorted({size for ratios in found.values() for size in ratios})
    for name, ratios in found.items():
        places = [sizes.index(size) for size in ratios]
        axes.plot(places, list(ratios.values()), marker="o", label=_short(name), color=_colour(name))
    _ratio_axis(axes)
    axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    axes.set_title("Durable append by messages held, times the limit")
    _legend(axes)


def _writers(axes: Axes, found: dict[str, dict[str, dict[str, float]]]) -> None:
    for name, bars in _bars(axes, found["rate"]).items():
        axes.bar_label(bars, [show_time(waits[name]) for waits in found["longest"].values()], fontsize=7.5)
    axes.set_title("Eight writers, appends per second (longest wait)")


def _reads(axes: Axes, found: dict[str, dict[str, float]]) -> None:
    _bars(axes, found)
    _ratio_axis(axes)
    axes.set_title("Reading messages back, times the limit")


def _bars(axes: Axes, groups: dict[str, dict[str, float]]) -> dict[str, BarContainer]:
    drawn, names = {}, list(next(iter(groups.values())))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [group + (number - (len(names) - 1) / 2) * width for group in range(len(groups))]
        heights = [values[name] for values in groups.values()]
        hatch = "//" if "," in name else None
        look: dict[str, Any] = {"label": _short(name), "color": _colour(name), "hatch": hatch, "edgecolor": "white"}
        drawn[name] = axes.bar(places, heights, width * 0.9, **look)
    axes.set_xticks(range(len(groups)), list(groups))
    _legend(axes)
    return drawn


def _ratio_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)


def _short(name: str) -> str:
    for part in ("limit: ", "baseline: ", " SQLiteSession", " SqliteSaver", " SqliteSessionService", " SqliteDb"):
        name = name.replace(part, "")
    return name


def _colour(name: str) -> str:
    return next(colour for start, colour in _COLOURS.items() if name.startswith(start))
