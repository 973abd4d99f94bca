"""Views for notebooks: plain tables, everything escaped, no scripts and no styles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def fields(title: str, values: Mapping[str, Any]) -> str:
    """Format one thing as a table of its fields; empty ones are left out."""
    shown = ((name, value) for name, value in values.items() if value not in (None, "", [], {}, False))
    return table(title, ("field", "value"), shown)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format rows under a title."""
    head = "".join(f"<th>{_cell(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><caption>{_cell(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    from html import escape

    text = str(value)
    return escape(text if len(text) <= 500 else text[:497] + "...").replace("\n", "<br>")
