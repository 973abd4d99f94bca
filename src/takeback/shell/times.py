"""Times as people and programs read them: relative in lists, both forms in details, RFC 3339 UTC in JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31_557_600}


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def age(at: datetime | None) -> str:
    """Format how long ago something was, as one number: now, 42s, 5m, 6h, 3d, 8w, 2y."""
    if at is None:
        return "-"
    seconds = (now() - at).total_seconds()
    if seconds < 5:
        return "now"
    for unit, size in (("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 604800)):
        largest = {"s": 60, "m": 3600, "h": 86400, "d": 14 * 86400, "w": 104 * 604800}[unit]
        if seconds < largest:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // _UNITS['y'])}y"


def ago(at: datetime | None) -> str:
    """Format an age as a phrase: now, 6h ago."""
    found = age(at)
    return found if found in ("now", "-") else f"{found} ago"


def both(at: datetime | None, *, utc: bool) -> str:
    """Format a time for a detailed view: the moment, and how long ago it was."""
    if at is None:
        return "-"
    shown = at.astimezone(UTC) if utc else at.astimezone()
    zone = "UTC" if utc else shown.strftime("%z")
    return f"{shown:%Y-%m-%d %H:%M:%S} {zone} ({ago(at)})"


def rfc3339(at: datetime | None) -> str | None:
    """Format a time for programs."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: datetime, *, utc: bool) -> str:
    """Format the time of day."""
    return f"{at.astimezone(UTC) if utc else at.astimezone():%H:%M:%S}"


def stamp(at: datetime, *, utc: bool) -> str:
    """Format a time for a list of moments, in the form that ``parse_moment`` takes."""
    return f"{at.astimezone(UTC) if utc else at.astimezone():%Y-%m-%d %H:%M:%S}"


def parse_moment(text: str) -> datetime:
    """Parse ``14:00`` (the last time it was that late), ``10m`` (that long ago), or a date with or without a time."""
    import re

    clock = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", text.strip(), re.ASCII)
    try:
        if clock is None:
            return parse_since(text)
        here = now().astimezone()
        found = here.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
        return found if found <= here else found - timedelta(days=1)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time; write 14:00, 10m (that long ago) or 2026-01-31T14:00") from error


def parse_span(text: str) -> float:
    """Parse ``2s``, ``1.5s`` or ``5m`` as seconds; anything else raises ``ValueError``."""
    import re

    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smh])", text.strip(), re.ASCII)
    if not found:
        raise ValueError(text)
    return float(found[1]) * _UNITS[found[2]]


def parse_since(text: str) -> datetime:
    """Parse ``2w`` or ``36h`` (that long ago) or a date; anything else raises ``ValueError``."""
    import re

    span = re.fullmatch(r"(\d{1,6})\s*([smhdwy])", text.strip(), re.ASCII)
    try:
        if span:
            return now() - timedelta(seconds=int(span[1]) * _UNITS[span[2]])
        found = datetime.fromisoformat(text.strip())
        return found if found.tzinfo is not None else found.astimezone()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is neither a span (90m, 36h, 2w) nor a date (2026-01-31)") from error
