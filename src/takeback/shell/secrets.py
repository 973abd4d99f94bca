"""Finding likely secrets: keys of known vendors, private keys, tokens sent with requests, passwords.

Only unmistakable forms count: a vendor's prefix with the right length, a header's name, a word like ``password`` with a
value behind it. Hashes, ids and base64 images have none of these and stay. This is a safety net for mistakes, not a
guarantee: a secret without such a form is not found.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple


class Pattern(NamedTuple):
    """One form of secret: its name for people, substrings one of which it must contain, and its pattern.

    Searching for the substrings first, in any case, spares nearly every text the regex. The group ``secret`` is hidden.
    """

    name: str
    needles: tuple[str, ...]
    form: re.Pattern[str]


def _pattern(name: str, needles: str, form: str) -> Pattern:
    return Pattern(name, tuple(needles.split()), re.compile(form))


# No key character may touch either side of a key, or a hash that happens to contain such a run would count. But in
# JSON an escaped newline ends in a letter, right before which a key may start.
_LEFT = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))"
_RIGHT = r"(?![A-Za-z0-9_])"
# An unquoted value after ``password=`` that is not a variable, not program code and not already hidden.
_BARE = (
    r"(?![A-Za-z_][\w.]{0,80}[(\[)]|[A-Za-z_]{1,80}(?:\.[A-Za-z_]{1,80}){1,8}(?![^\s,;\"'\\])"
    r"|[^\s\[]{0,4}\[[A-Za-z ]{3,30} hidden\])"
    r"[^\s\"'\\$<>{(\[=*&|%@#:?!,;/]"
)
PATTERNS = (
    _pattern(
        "private key",
        "private",
        r"(?P<secret>-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----)[\s\S]|\\n){16,20000}(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?)",
    ),
    _pattern("Anthropic key", "sk-ant-", rf"{_LEFT}(?P<secret>sk-ant-[a-z0-9]{{2,12}}-[A-Za-z0-9_-]{{20,}})"),
    _pattern("OpenAI key", "sk-", rf"{_LEFT}(?P<secret>sk-(?:proj-|svcacct-|admin-)[A-Za-z0-9_-]{{20,}})"),
    _pattern("OpenAI key", "sk-", rf"{_LEFT}(?P<secret>sk-[A-Za-z0-9]{{32,}}){_RIGHT}"),
    _pattern("OpenRouter key", "sk-or-", rf"{_LEFT}(?P<secret>sk-or-v1-[0-9a-f]{{32,}}){_RIGHT}"),
    _pattern("Google key", "aiza", rf"{_LEFT}(?P<secret>AIza[A-Za-z0-9_-]{{35}}){_RIGHT}"),
    _pattern("Google token", "ya29.", rf"{_LEFT}(?P<secret>ya29\.[A-Za-z0-9_-]{{20,}})"),
    _pattern("AWS key", "akia asia", rf"{_LEFT}(?P<secret>(?:AKIA|ASIA)[A-Z2-7]{{16}}){_RIGHT}"),
    _pattern(
        "AWS secret",
        "secret",
        r"(?i)aws_?secret_?access_?key[\"'\\]{0,3}\s{0,3}[:=]\s{0,3}[\"'\\]{0,3}(?P<secret>[A-Za-z0-9/+]{40})"
        r"(?![A-Za-z0-9/+])",
    ),
    _pattern("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_LEFT}(?P<secret>gh[pousr]_[A-Za-z0-9]{{36,}}){_RIGHT}"),
    _pattern("GitHub token", "github_pat_", rf"{_LEFT}(?P<secret>github_pat_[A-Za-z0-9_]{{60,}}){_RIGHT}"),
    _pattern("GitLab token", "glpat-", rf"{_LEFT}(?P<secret>glpat-[A-Za-z0-9_-]{{20,}})"),
    _pattern("Slack token", "xox", rf"{_LEFT}(?P<secret>xox[abeoprs]-[A-Za-z0-9-]{{10,}})"),
    _pattern("Slack webhook", "hooks.slack", r"(?P<secret>https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,})"),
    _pattern("Stripe key", "k_live_", rf"{_LEFT}(?P<secret>(?:sk|rk)_live_[A-Za-z0-9]{{16,}}){_RIGHT}"),
    _pattern("npm token", "npm_", rf"{_LEFT}(?P<secret>npm_[A-Za-z0-9]{{36,}}){_RIGHT}"),
    _pattern("PyPI token", "pypi-", rf"{_LEFT}(?P<secret>pypi-AgE[A-Za-z0-9_-]{{50,}})"),
    _pattern("Hugging Face token", "hf_", rf"{_LEFT}(?P<secret>hf_[A-Za-z0-9]{{30,}}){_RIGHT}"),
    _pattern(
        "web token",
        "eyj",
        rf"{_LEFT}(?P<secret>eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{10,}})",
    ),
    _pattern(
        "bearer token",
        "bearer",
        r"(?i)\bbearer[ \t]{1,3}(?P<secret>(?=[^\s\"']{0,80}[0-9])[A-Za-z0-9._~+/-]{20,}=*)",
    ),
    _pattern(
        "password in a URL",
        "://",
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/\"'<>]{0,80}:(?P<secret>[^\s/\"'<>]+)@",
    ),
    _pattern(
        "password",
        "passw api secret token",
        r"(?i)(?:password|passwd|api[_-]?key|client[_-]?secret|access[_-]?token)[\"'\\]{0,3}\s{0,3}[=:]\s{0,3}"
        r"[\"'\\]{1,3}(?P<secret>[^\s\"'\\]{8,4000})[\"'\\]",
    ),
    _pattern(
        "password",
        "passw api secret token",
        r"(?i)[?&;](?:password|passwd|api[_-]?key|access[_-]?token)=(?P<secret>[^\s&;\"'<>]{6,})",
    ),
    _pattern(
        "password",
        "authorization",
        r"(?i:authorization[\"'\\]{0,3}\s{0,3}[:=]\s{0,3}[\"'\\]{0,3}basic[ \t]{1,3})"
        r"(?P<secret>(?=[^\s\"']{0,200}?(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9+/_-]{8,}=*)",
    ),
    # An environment variable: whatever its value is.
    _pattern(
        "password",
        "passw key secret token",
        r"(?:PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET_?KEY|SECRET|TOKEN)=[\"'\\]{0,3}"
        rf"(?P<secret>{_BARE}[^\s\"'\\]{{5,}})",
    ),
    # Anywhere else the value may be an ordinary word: only a digit or a symbol makes it a password.
    _pattern(
        "password",
        "passw api secret token",
        r"(?i)(?:password|passwd|api[_-]?key|client[_-]?secret|secret[_-]?key|access[_-]?token|auth[_-]?token)"
        r"[\"'\\]{0,3}[ \t]{0,3}[=:][ \t]{0,3}"
        rf"(?P<secret>(?=[^\s\"'\\]{{0,200}}?[0-9@#$%^&*~]){_BARE}[^\s\"'\\]{{5,}})",
    ),
)

# Placeholders that stand where a secret would.
_NONE = re.compile(
    r"\*{3,}|x{4,}|\.{3,}|<[^>]*>|\$\{?\w+\}?|\{\{?\w+\}?\}"
    r"|(?i:your[-_ ].*|changeme|example.*|redacted|undefined|placeholder)"
)


def _likely(text: str) -> list[Pattern]:
    """Return the patterns that could match a text."""
    lowered = text.lower()
    return [pattern for pattern in PATTERNS if any(needle in lowered for needle in pattern.needles)]


def mask(text: str) -> str:
    """Hide likely secrets in a text; the first letters stay, so that the owner knows which secret it is."""
    return _hidden(text, Counter())


def _hidden(text: str, counts: Counter[str]) -> str:
    """Hide secrets and count them; what one pattern has hidden no other pattern counts."""
    for pattern in _likely(text):
        text = pattern.form.sub(lambda found: _masked(found, pattern.name, counts), text)  # noqa: B023
    return text


def _masked(found: re.Match[str], name: str, counts: Counter[str]) -> str:
    secret, (start, end) = found["secret"], found.span("secret")
    if _is_none(secret):
        return found[0]
    counts[name] += 1
    shown = secret[:4] if len(secret) >= 20 and not secret.startswith("-") else ""
    begin = found.start()
    return f"{found[0][: start - begin]}{shown}[{name} hidden]{found[0][end - begin :]}"


def _is_none(secret: str) -> bool:
    return _NONE.fullmatch(secret) is not None or secret.endswith(" hidden]")


class Findings:
    """Counts likely secrets over many texts."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def look(self, text: str) -> str:
        """Count the secrets in a text, and return it unchanged."""
        _hidden(text, self.counts)
        return text

    def mask(self, text: str) -> str:
        """Count the secrets in a text, and return it with them hidden."""
        return _hidden(text, self.counts)
