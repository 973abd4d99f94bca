"""Likely secrets are found and hidden; what only looks like one at first glance stays."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid

import pytest

from takeback.shell.secrets import Findings, mask

pytestmark = pytest.mark.feature("F9")

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _some(count: int, letters: str = _LETTERS) -> str:
    return "".join(random.Random(count).choices(letters, k=count))


PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{_some(64)}\n{_some(60)}\n-----END RSA PRIVATE KEY-----"
# What each stands in, and the part that must not be seen afterwards.
SECRETS = {
    "Anthropic key": ("key sk-ant-{0}.", "api03-" + _some(80)),
    "OpenAI key": ("OPENAI_API_KEY=sk-{0}", "proj-" + _some(60)),
    "Google key": ('{{"key": "AIza{0}"}}', _some(35)),
    "Google token": ("token ya29.{0}", _some(60)),
    "AWS key": ("id AKIA{0} here", _some(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
    "AWS secret": ("aws_secret_access_key = {0}", _some(40)),
    "GitHub token": ("git clone with ghp_{0}", _some(36)),
    "GitLab token": ("PRIVATE-TOKEN: glpat-{0}", _some(20)),
    "Slack token": ("xoxb-{0}", "1234567890-" + _some(24)),
    "Stripe key": ("sk_live_{0}", _some(24)),
    "npm token": ("//registry/:_authToken=npm_{0}", _some(36)),
    "Hugging Face token": ("hf_{0}", _some(34)),
    "web token": ("cookie eyJ{0}", f"{_some(20)}.eyJ{_some(40)}.{_some(30)}"),
    "bearer token": ("Authorization: Bearer {0}", _some(40)),
    "password in a URL": ("postgresql://anna:{0}@db.example.org/x", "s3cr3t-one"),
    "password": ('"password": "{0}"', "correct-horse"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_and_hidden(name: str) -> None:
    form, secret = SECRETS[name]
    text = f"before {form.format(secret)} behind"
    found = Findings()
    found.look(text)
    assert name in found.counts
    shown = mask(text)
    assert secret not in shown
    assert secret[6:] not in shown
    assert f"[{name} hidden]" in shown
    assert shown.startswith("before ")
    assert shown.endswith(" behind")
    assert mask(shown) == shown, "hiding twice is hiding once"


def test_a_private_key_is_hidden_as_it_is_written_and_in_json() -> None:
    for text in (PEM, PEM.replace("\n", "\\n"), PEM.partition("-----END")[0]):
        shown = mask(f"key: {text} end")
        assert _some(60) not in shown
        assert _some(64) not in shown
        assert "[private key hidden]" in shown


KEYS = {name: form for name, form in SECRETS.items() if name.endswith((" key", " token")) and name != "bearer token"}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("left", ["\n", "\t", "\r\n", "\x0b"])
def test_a_secret_at_the_start_of_a_line_is_hidden_in_json_too(name: str, left: str) -> None:
    form, secret = SECRETS[name]
    (key,) = (each.rpartition("=")[2].strip("\"'{}.") for each in form.format(secret).split() if secret in each)
    text = json.dumps({"output": f"x{left}{key}{left}y"})
    for given in (text, json.dumps(text)):
        assert secret[6:] not in mask(given)
        found = Findings()
        found.look(given)
        assert found.counts == {name: 1}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("right", ["/path", "=", "-", "+x", "\\n"])
def test_whatever_stands_behind_a_key_it_is_hidden(name: str, right: str) -> None:
    form, secret = SECRETS[name]
    assert secret[6:] not in mask(form.format(secret) + right)


def test_a_long_key_leaves_no_tail() -> None:
    long = _some(5000)
    for text in (
        f"sk-ant-api03-{long}",
        f"sk-proj-{long}",
        f"sk-{long}",
        f"ghp_{long}",
        f"xoxb-{long}",
        f"ya29.{long}",
        f"eyJ{long}.eyJ{long}.{long}",
        f"Bearer {long}",
        f"GET /x?api_key={long}",
        f'password="{long[:3000]}"',
        f"postgres://u:{long}@h",
    ):
        assert long[-20:] not in mask(f"{text} end"), text[:20]
        assert long[2980:3000] not in mask(f"{text} end"), text[:20]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DB_PASSWORD=correcthorse", "correcthorse"),
        ("DB_PASSWORD=p@$$w(0)rd;x", "w(0)rd"),
        ("export OPENAI_API_KEY=abcdefgh", "abcdefgh"),
        ("MY_TOKEN='abcdefgh'", "abcdefgh"),
        ("SECRET_KEY=kq-abcdefgh", "abcdefgh"),
        ("db_password=hunter2", "hunter2"),
        ("password: hunter2", "hunter2"),
        ("Password: hunter2, user: anna", "hunter2"),
        ("api_key: a1b2c3d4e5f6a7b8c9d0e1f2", "c3d4e5f6"),
        ("pgpassword = tr0ub4dor&3", "tr0ub4dor"),
        ("Authorization: Basic YW5uYTpzM2NyM3Q=", "YW5uYTpz"),
        ('{"Authorization": "Basic YW5uYTpzM2NyM3Q="}', "YW5uYTpz"),
        ("curl -H 'authorization: basic YW5uYTpodW50ZXI'", "YW5uYTpo"),
        ("postgres://u:p@ss@h/db", "ss@"),
        ("postgres://u:p:x@ss@h:5432/db", "x@ss"),
        ("https://anna@corp.example:s3cr3t@git.example/x", "s3cr3t"),
    ],
)
def test_passwords_without_quotes(text: str, secret: str) -> None:
    for given in (text, f"{text}\nnext line", json.dumps({"output": f"a\n{text}\nnext line"})):
        shown = mask(given)
        assert secret not in shown
        assert "hidden]" in shown
        assert ("next line" in shown) == ("next line" in given)
        assert mask(shown) == shown
        found = Findings()
        found.look(given)
        assert sum(found.counts.values()) == 1


def test_a_secret_is_counted_once() -> None:
    found = Findings()
    found.look(f"OPENAI_API_KEY=sk-proj-{_some(60)} Authorization: Bearer ghp_{_some(36)}")
    assert found.counts == {"OpenAI key": 1, "GitHub token": 1}


def test_more_forms() -> None:
    for text in (
        "github_pat_" + _some(22) + "_" + _some(59),
        "sk-" + _some(48),
        "https://hooks.slack.com/services/T0000000/B0000000/" + _some(24),
        "GET /x?api_key=" + _some(20),
        "api_key='" + _some(20) + "'",
        "redis://:hunter2@localhost:6379/0",
        "https://ghp_" + _some(36) + "@github.com/owner/name",
    ):
        assert "hidden]" in mask(text), text


NONE = [
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha1(b"x").hexdigest(),
    str(uuid.UUID(int=7)),
    "1m7jr3a88cyjmgsbyx2rsq9ks",
    base64.b64encode(random.Random(1).randbytes(30_000)).decode(),
    "data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(9_000)).decode(),
    "sha256-" + base64.b64encode(hashlib.sha256(b"y").digest()).decode(),
    "sk-learn and sk-2 are no keys",
    "risk-averse-people-and-desk-lamps-and-task-lists-are-not-keys-at-all",
    "password: ask Anna",
    "the password is checked by check_password(password=given)",
    'password = ""',
    'api_key = "${OPENAI_API_KEY}"',
    'api_key="<your key here>"',
    "the bearer of this letter shall be let in without further questions",
    "Authorization: Bearer $TOKEN",
    "https://example.org:8080/path?x=1#@here",
    "postgresql://anna:***@db/x",
    "ssh git@github.com:owner/name.git",
    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK\n-----END PUBLIC KEY-----",
    "AKIAIOSFODNN7",
    "def token(self): return self.access_token",
    "eyJhbGciOi is only the beginning",
    "npm_config_cache and hf_hub_download",
    "def login(user: str, password: str) -> None: ...",
    "login(user, password=None, api_key=self.api_key)",
    "password: Optional[str] = None",
    "password: constr(min_length=8)",
    "password=os.environ['DB1_PASSWORD']",
    "PASSWORD=$(pass show db1)",
    "API_KEY=${OPENAI_API_KEY} TOKEN=$TOKEN1 PASSWORD=<secret1>",
    "API_KEY=os.environ.get('K') SECRET_KEY=settings.secret",
    "cursor.execute('... WHERE password=%(password1)s AND x=:password2')",
    "password: String! @deprecated",
    "Password: minimum 8 characters, at most 64",
    "MAX_TOKENS=4096 and TOKEN_LIMIT=100000 and POSTGRES_PASSWORD_FILE=/run/secrets/db1",
    "if password == other1:",
    "password_hash=" + hashlib.sha256(b"z").hexdigest(),
    "Authorization: Basic authentication is used here",
    "Authorization: Basic $CREDENTIALS1",
    "see http://example.org:8080/a and mail anna@example.org",
]


@pytest.mark.parametrize("text", NONE, ids=range(len(NONE)))
def test_what_is_no_secret_stays(text: str) -> None:
    found = Findings()
    found.look(text)
    assert not found.counts
    assert mask(text) == text


def test_hashes_and_base64_by_the_thousand_stay(seed: int) -> None:
    rng = random.Random(f"hashes {seed}")
    text = "\n".join(rng.randbytes(rng.choice((16, 20, 32, 64))).hex() for _ in range(3000))
    text += "\n".join(base64.b64encode(rng.randbytes(rng.randrange(10, 90))).decode() for _ in range(3000))
    assert mask(text) == text


LONG = ["PASSWORD=", "password:a", "a://a:", "authorization: basic ", "sk-proj-", "\\nsk-", "password=a.", "TOKEN=a["]


@pytest.mark.parametrize(
    "piece", ["a://", "sk-", "password:", "eyJ", "-----BEGIN PRIVATE KEY-----", "bearer ", '"\\', *LONG]
)
def test_no_text_takes_for_ever(piece: str) -> None:
    mask(piece * (1_000_000 // len(piece)))  # far beyond the time limit of a test, if the square of its length counted
