"""Likely secrets are found and hidden; what only looks like one at first glance stays."""

from __future__ import annotations

import base64
import hashlib
import random
import time
import uuid

import pytest

from holdfast.exporters.secrets import Findings, mask

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


@pytest.mark.parametrize("piece", ["a://", "sk-", "password:", "eyJ", "-----BEGIN PRIVATE KEY-----", "bearer ", '"\\'])
def test_no_text_takes_for_ever(piece: str) -> None:
    text, start = piece * (400_000 // len(piece)), time.monotonic()
    mask(text)
    assert time.monotonic() - start < 10
