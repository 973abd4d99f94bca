"""Likely secrets are hidden in whatever a server gives: answers, errors, resources, prompts, and pieces of texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _client import Agent, Prompt, serving, use_tool

import takeback
from takeback.tools import EFFECTS

pytestmark = pytest.mark.feature("E12", "F10")

TAIL = "Qx7Lm2Zp9Rt4Vw8Yb3Nc6Kd1Fh5Gj0Sa"  # no part of it may be read anywhere
SECRETS = {
    "anthropic": f"sk-ant-api03-{TAIL}",
    "openai": f"sk-proj-{TAIL}",
    "github": f"ghp_{TAIL}abcd",
    "password": f'password = "{TAIL}"',
    "variable": f"export DB_PASSWORD={TAIL}",
    "header": f"Authorization: Bearer {TAIL}",
    "url": f"postgres://admin:{TAIL}@db.example/pay",
    "private": f"-----BEGIN RSA PRIVATE KEY-----\n{TAIL}\n{TAIL}\n-----END RSA PRIVATE KEY-----",
}


def leaks(text: str) -> bool:
    """Whether a text holds a part of a secret from which it could be known again."""
    return any(TAIL[at : at + 12] in text for at in range(len(TAIL) - 11))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project."""
    made = tmp_path_factory.mktemp("secrets") / "pay"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def store(place: Path) -> Iterator[takeback.Store]:
    """A store with a session for each form of secret, in every place that takes text."""
    with takeback.open(place.parent / "store.db") as store:
        for name, secret in SECRETS.items():
            said = f"Use this: {secret}\nand go on"
            work = place / name
            work.mkdir()
            store.save_agent(name, name=said, system_prompt=said, capabilities=[said], config={"x": [said]})
            store.get_agent(name).state.set("kept", {"deep": [said]})
            with store.session(name, agent=name, workspace=work, title=said) as s:
                s.user(said)
                with s.tool("bash", {"command": said}) as running:
                    (work / ".env").write_text(said)
                    running.result(said)
                s.assistant(said)
                s.set_tasks([said])
                s.set_plan(said)
                s.note(said)
                s.state.set("kept", {"deep": [said]})
                s.checkpoint(f"{secret[:80]}!", description=said)
                s.spawn(said, label=secret[:80])
                s.user(said)
                use_tool(s, "bash", lambda work=work: (work / ".env").write_text("changed"))
                s.fork(1, name=secret[:80])
                s.rename(said)
            store.checkpoint_agent(name, secret[:80], description=said)
        yield store


@pytest.fixture(scope="module")
def agent(store: takeback.Store, place: Path) -> Iterator[Agent]:
    """An agent that is connected to it with all permissions."""
    with serving(store, *EFFECTS, place=place) as made:
        yield made


@pytest.mark.parametrize("name", SECRETS)
def test_no_answer_shows_a_secret(agent: Agent, store: takeback.Store, name: str, place: Path) -> None:
    point = f"{name}:2^"
    for tool, arguments in (
        ("get_session", {"session": name}),
        ("read_messages", {"session": name, "max_chars": 100}),
        ("read_messages", {"session": name}),
        ("search_history", {"query": "this", "session": name}),
        ("conversation_search", {"query": "this", "agent": name}),
        ("list_sessions", {"agent": name}),
        ("list_sessions", {"parent": name}),
        ("get_file_at", {"point": point, "path": ".env"}),
        ("file_history", {"path": ".env", "directory": str(place / name)}),
        ("diff_points", {"first": point}),
        ("get_state", {"session": name}),
        ("get_state", {"agent": name, "key": "kept"}),
        ("preview_rewind", {"point": point}),
        ("agent_load", {"agent": name}),
        ("agent_list", {}),
        ("conversation_load", {"conversation": name}),
        ("conversation_list", {"agent": name}),
        ("checkpoint_list", {"session": name}),
        ("checkpoint_list", {"agent": name}),
        ("agent_delete", {"agent": name}),
        ("conversation_delete", {"conversation": name}),
    ):
        found = str(agent.ask(tool, **arguments))
        assert not leaks(found), tool
        if tool in ("get_session", "read_messages", "get_file_at", "get_state", "diff_points"):
            assert " hidden]" in found, tool


@pytest.mark.parametrize("name", SECRETS)
def test_no_error_resource_or_prompt_shows_a_secret(agent: Agent, name: str) -> None:
    said = [{"role": "user", "content": "something else"}]
    for text in (
        agent.refused("conversation_save", conversation=name, messages=said, agent=name),
        agent.refused("fork_session", point=f"{name}:1", name=SECRETS[name][:80]),
        agent.refused("get_session", session=SECRETS[name]),
        agent.refused("set_state", session=name, values=SECRETS[name]),
        agent.unread(f"takeback://session/{SECRETS['openai']}"),
    ):
        assert not leaks(text)
    texts = [
        agent.read(f"takeback://{each}") for each in (f"session/{name}", f"messages/{name}", f"file/{name}:2^/.env")
    ]
    prompts: list[Prompt] = [agent.prompt(each, session=name) for each in ("resume_work", "handoff")]
    for text in (*texts, *(each.data.body for each in prompts)):
        assert " hidden]" in text
        assert not leaks(text)


def test_a_snippet_that_is_cut_in_the_middle_of_a_secret_shows_no_part_of_it(
    agent: Agent, store: takeback.Store
) -> None:
    session = store.create_session("snippets")
    long = f"-----BEGIN PRIVATE KEY-----\n{(TAIL + chr(10)) * 60}-----END PRIVATE KEY-----"
    for number, secret in enumerate([*SECRETS.values(), long]):
        for gap in (0, 3, 20, 40, 80):
            filler = "word " * gap
            session.user(f"{filler}before{number} {filler}{secret} {filler}behind{number} {filler}")
    for number in range(len(SECRETS) + 1):
        for word in (f"before{number}", f"behind{number}"):
            found = agent.ask("search_history", query=word, limit=100)["hits"]
            assert len(found) >= 5
            assert not leaks(str(found))
    for part in (TAIL, TAIL[:8], f'"{TAIL}"', f"{TAIL[:6]}*"):  # asking for the secret itself shows no more of it
        for hit in agent.ask("search_history", query=part, limit=100)["hits"]:
            assert not leaks(hit["snippet"])


def test_a_text_that_is_cut_in_the_middle_of_a_secret_shows_no_part_of_it(agent: Agent, store: takeback.Store) -> None:
    session = store.create_session("cuts", title="cuts")
    for before in range(40, 101, 4):
        session.user(f"{'x' * before} {SECRETS['anthropic']} and so on {'y' * 200}")
    found = agent.ask("read_messages", session="cuts", max_chars=100, limit=100)["messages"]
    assert len(found) == 16
    assert not leaks(str(found))


def test_a_file_that_is_read_in_pieces_shows_no_part_of_a_secret(
    agent: Agent, store: takeback.Store, place: Path
) -> None:
    work = place / "pieces"
    work.mkdir()
    (work / "key").write_text(f"{'x' * 80} {SECRETS['anthropic']} {'y' * 80}")
    with store.session("pieces", workspace=work) as s:
        s.user("Look")
        s.checkpoint("then")
    for begin in range(60, 130):
        shown = agent.ask("get_file_at", point="pieces:then", path="key", offset=begin, max_chars=100)
        assert not leaks(shown.get("content", "")), begin


def test_a_value_that_its_key_calls_a_password_is_hidden(agent: Agent, store: takeback.Store) -> None:
    store.create_session("keys").state.update({"password": TAIL, "deep": {"api_key": TAIL}})
    assert not leaks(str(agent.ask("get_state", session="keys")))
