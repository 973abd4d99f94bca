"""What a context says of itself and what it gives to an SDK: repairs, instructions, arguments of the caller."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from google.genai import types

from takeback import Context, Invalid, Repair, Session, Store
from takeback.testing import validators

from ._checks import ALL, context_of, dumped

pytestmark = pytest.mark.feature("F3")
OPENAI = ("openai-chat", "openai-responses")
CALL = {"id": "c1", "name": "read", "arguments": {}}

# ---------------------------------------------------------------------- developer messages

SAID: dict[str, dict[str, Any]] = {
    "ours": {"role": "developer", "content": "Be brief."},
    "openai-chat": {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "app"},
    "openai-responses": {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be brief."}],
    },
}


@pytest.mark.trial("T65")
@pytest.mark.parametrize("form", SAID)
@pytest.mark.parametrize("provider", ALL)
def test_what_a_developer_says_stays_where_it_is_if_there_is_a_role_for_it(
    session: Session, provider: str, form: str
) -> None:
    session.user("Hi")
    session.assistant("Hello.")
    session.append(SAID[form])
    session.user("Go on")
    context = context_of(session, provider)
    roles = [message["role"] for message in context.messages]
    if provider in OPENAI:
        assert roles == ["user", "assistant", "developer", "user"]
        assert context.system == "You fix code."
        assert not context.repairs
        assert form != provider or context.messages[2] == SAID[form]
    else:
        assert len(roles) == 3
        assert context.system == "You fix code.\n\nBe brief."
        assert context.repairs == ("moved a developer message into the system prompt (message 3)",)


@pytest.mark.trial("T65")
@pytest.mark.parametrize("provider", OPENAI)
def test_what_a_developer_said_early_is_sent_within_any_budget(session: Session, provider: str) -> None:
    session.append(SAID["ours"])
    for turn in range(300):
        session.append({"role": "user", "content": f"{turn} " + "please " * 50}, {"role": "assistant", "content": "Ok"})
    context = session.context(provider, max_tokens=2000)
    validators.require_valid(provider, context.request())
    assert [message["content"] for message in context.messages if message["role"] == "developer"] == ["Be brief."]
    assert context.omitted


# ---------------------------------------------------------------------- nothing to send


@pytest.mark.trial("T66")
@pytest.mark.parametrize("provider", ALL)
def test_nothing_to_send_is_an_error_of_the_request(store: Store, session: Session, provider: str) -> None:
    empty = store.create_session("empty").context(provider)
    assert (empty.system, empty.messages, empty.tokens) == (None, [], 0)
    with pytest.raises(Invalid, match=r"nothing to send: .* no message; add .* session\.user"):
        empty.request()
    session.system("Be brief.")
    session.append(SAID["ours"])
    told = session.context(provider)
    with pytest.raises(Invalid, match="nothing to send: the conversation has only instructions"):
        told.request()
    session.user("Hi")
    validators.require_valid(provider, session.context(provider).request())


# ---------------------------------------------------------------------- repairs


@pytest.mark.trial("T57")
@pytest.mark.parametrize("provider", ALL)
def test_repairs_name_messages_and_say_what_is_new(session: Session, provider: str) -> None:
    session.user("Hi")
    session.set_tasks(["look"])  # an entry that is no message
    session.append({"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]})
    session.user("Well?")
    (closed,) = context_of(session, provider).repairs
    asked = session.messages()[1]
    assert closed == f"closed a call without a result (message {asked.seq})"
    assert (closed.what, closed.messages, closed.new) == ("closed a call without a result", (asked.seq,), True)
    session.assistant("It is fine.")
    session.append({"role": "critic", "content": "Is it?"})
    old, new = sorted(context_of(session, provider).repairs, key=lambda each: each.new)
    assert (old, old.new) == (closed, False)
    assert (new.what, new.messages, new.new) == ("sent role 'critic' as user", (session.messages()[-1].seq,), True)
    assert "2 repairs (1 new)" in repr(session.context(provider))


@pytest.mark.trial("T57")
def test_what_is_no_message_is_not_called_one(session: Session) -> None:
    session.user("Hi")
    session.tool("read", {"path": "a"}, id="own").__enter__()
    (closed,) = context_of(session, "anthropic").repairs
    assert closed == "closed a call without a result (tool start 2)"
    assert closed.messages == ()


@pytest.mark.trial("T57")
def test_repairs_are_strings_and_leave_the_process(session: Session) -> None:
    session.append({"role": "critic", "content": "Hm."})
    context = session.context("anthropic")
    (repair,) = context.repairs
    assert isinstance(repair, str)
    for again in (pickle.loads(pickle.dumps(repair)), copy.deepcopy(repair)):
        assert isinstance(again, Repair)
        assert (again, again.what, again.messages, again.new) == (repair, repair.what, (1,), True)
    for back in (Context.from_dict(context.to_dict()), msgspec.json.decode(msgspec.json.encode(context), type=Context)):
        assert back == context
        assert back.repairs[0].new


# ---------------------------------------------------------------------- arguments of the caller

TOOLS: dict[str, Any] = {
    "anthropic": [{"name": "read", "input_schema": {"type": "object"}}],
    "openai-chat": [{"type": "function", "function": {"name": "read"}}],
    "openai-responses": [{"type": "function", "name": "read", "parameters": {}, "strict": False}],
    "gemini": [{"function_declarations": [{"name": "read"}]}],
    "bedrock": [{"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}],
}
MORE: dict[str, dict[str, Any]] = {
    "anthropic": {"max_tokens": 100},
    "openai-chat": {"temperature": 0.5},
    "openai-responses": {"store": False},
    "gemini": {"temperature": 0.5, "max_output_tokens": 100},
    "bedrock": {"inferenceConfig": {"maxTokens": 100}},
}


@pytest.mark.parametrize("provider", ALL)
def test_tools_and_more_go_where_the_call_takes_them(session: Session, provider: str) -> None:
    session.user("Hi")
    context = session.context(provider, model="m")
    request = context.request(tools=TOOLS[provider], **MORE[provider])
    validators.require_valid(provider, request)
    plain = context.request()
    assert plain == context.request(tools=None)
    if provider == "gemini":
        assert request["config"] == {**plain["config"], "tools": TOOLS[provider], **MORE[provider]}
        assert request == {**plain, "config": request["config"]}
    else:
        told = {"toolConfig": {"tools": TOOLS[provider]}} if provider == "bedrock" else {"tools": TOOLS[provider]}
        assert request == {**plain, **told, **MORE[provider]}


def test_settings_of_gemini_are_merged_whatever_they_are_given_as(session: Session) -> None:
    session.user("Hi")
    context = session.context("gemini", model="m")
    made = types.GenerateContentConfig(temperature=0.5)
    for config in ({"temperature": 0.5}, made):
        request = context.request(tools=TOOLS["gemini"], config=config)
        assert request["config"] == {
            "system_instruction": "You fix code.",
            "temperature": 0.5,
            "tools": TOOLS["gemini"],
        }
    for wrong in ({"system_instruction": "Other."}, {"systemInstruction": "Other."}):
        with pytest.raises(Invalid, match="'system_instruction' of the config comes from the context"):
            context.request(config=wrong)
    with pytest.raises(Invalid, match="'temperature' of the config"):
        context.request(config=made, temperature=0.7)
    with pytest.raises(Invalid, match="config must be a dict"):
        context.request(config=5)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("anthropic", "messages"),
        ("anthropic", "system"),
        ("openai-chat", "messages"),
        ("openai-responses", "instructions"),
        ("openai-responses", "input"),
        ("gemini", "contents"),
        ("bedrock", "system"),
    ],
)
def test_what_the_context_gives_is_not_given_twice(session: Session, provider: str, name: str) -> None:
    session.user("Hi")
    with pytest.raises(Invalid, match=f"'{name}' of the request comes from the context"):
        session.context(provider).request(**{name: "other"})


def test_another_model_needs_another_context(store: Store, session: Session) -> None:
    session.user("Hi")
    assert session.context("anthropic").request(model="a")["model"] == "a"
    assert session.context("anthropic", model="a").request(model="a")["model"] == "a"
    with pytest.raises(Invalid, match=r"build the context for that model"):
        session.context("anthropic", model="a").request(model="b")
    bare = store.create_session("bare")
    bare.user("Hi")
    assert bare.context("anthropic").request(system="Be brief.")["system"] == "Be brief."
    assert dumped(bare.context("bedrock").request(toolConfig={"tools": []})["toolConfig"]) == b'{"tools": []}'
