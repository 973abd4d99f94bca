"""What is wrong in a log is put right in the context, said in its repairs, and left as it is in the store."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

import takeback
from takeback import Invalid, Session, Store
from takeback.client.contexts import Contexts
from takeback.context.build import build
from takeback.context.repair import BEGINNING, INTERRUPTED

from ._checks import ALL, context_of, dumped

pytestmark = pytest.mark.feature("F3")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def call(id: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments}


def calling(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def anthropic_calling(*ids: str) -> dict[str, Any]:
    uses = [{"type": "tool_use", "id": each, "name": "bash", "input": {}} for each in ids]
    return {"role": "assistant", "content": uses}


def anthropic_result(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": each, "content": f"{each}!"} for each in ids],
    }


# ---------------------------------------------------------------------- the value


def test_an_unknown_provider_is_invalid_and_the_known_ones_are_named(session: Session) -> None:
    for wrong in ("claude", None, ["gemini"]):
        with pytest.raises(Invalid, match=", ".join(ALL)):
            Contexts.context(session, wrong)  # type: ignore[arg-type]


def test_requests_have_the_names_of_each_sdk(session: Session) -> None:
    session.user("Hi")
    said = {"role": "user", "content": "Hi"}
    prompt = "You fix code."
    assert context_of(session, "anthropic", model="m").request() == {
        "model": "m",
        "system": prompt,
        "messages": [said],
    }
    assert context_of(session, "openai-chat").request() == {"messages": [{"role": "system", "content": prompt}, said]}
    assert context_of(session, "openai-responses").request() == {"instructions": prompt, "input": [said]}
    assert context_of(session, "gemini").request() == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "config": {"system_instruction": prompt},
    }
    assert context_of(session, "bedrock", model="m").request() == {
        "modelId": "m",
        "system": [{"text": prompt}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
    }


@pytest.mark.parametrize("provider", ALL)
def test_without_a_prompt_there_is_no_system(store: Store, provider: str) -> None:
    session = store.create_session("bare")
    session.user("Hi")
    context = context_of(session, provider)
    assert context.system is None
    assert not {"system", "instructions", "config"} & context.request().keys()
    assert repr(context) == f"<Context {provider}, 1 messages, about {context.tokens} tokens>"


def test_system_messages_follow_the_agents_prompt(session: Session) -> None:
    session.system("Be brief.")
    session.user("Hi")
    session.append({"role": "developer", "content": [{"type": "text", "text": "No jokes."}], "name": "app"})
    context = context_of(session, "anthropic")
    assert context.system == "You fix code.\n\nBe brief.\n\nNo jokes."
    assert context.messages == [{"role": "user", "content": "Hi"}]


def test_a_request_may_be_changed_without_changing_the_context(session: Session) -> None:
    session.user("Hi")
    context = context_of(session, "anthropic")
    context.request()["messages"].append("more")
    assert len(context.messages) == 1
    with pytest.raises(AttributeError):
        context.system = "other"  # type: ignore[misc]


@pytest.mark.parametrize("provider", ALL)
def test_a_context_writes_nothing(session: Session, provider: str) -> None:
    session.user("Hi")
    session.append(calling(call("c1")))
    before = [*session.entries()], session.refresh().revision
    context_of(session, provider)
    assert ([*session.entries()], session.refresh().revision) == before


@pytest.mark.parametrize("provider", ALL)
def test_another_process_gives_the_same_bytes(tmp_path: Any, provider: str) -> None:
    with takeback.open(str(tmp_path / "a.db")) as store:
        session = store.create_session("s")
        session.user("Hi")
        session.user("So\ud83d")
        session.append(calling(call("c 1"), call("c 1")), anthropic_calling("toolu_1"))
        first = dumped(context_of(session, provider).request())
    with takeback.open(str(tmp_path / "a.db")) as store:
        assert dumped(context_of(store.get_session("s"), provider).request()) == first


# ---------------------------------------------------------------------- calls and results


@pytest.mark.parametrize("provider", ALL)
def test_open_calls_are_closed(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(calling(call("c1"), call("c2", "read")))
    session.tool_result("c1", "fine")
    context = context_of(session, provider)
    assert context.repairs == ("closed a call without a result (message 2)",)
    shown = dumped(context.messages).decode()
    assert shown.count(INTERRUPTED) == 1
    assert "fine" in shown


def test_a_made_up_result_says_that_it_is_an_error(session: Session) -> None:
    session.user("Go")
    session.append(calling(call("c1")))
    assert context_of(session, "anthropic").messages[-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": INTERRUPTED, "is_error": True}
    ]
    assert context_of(session, "gemini").messages[-1]["parts"][0]["functionResponse"]["response"] == {
        "error": INTERRUPTED
    }


@pytest.mark.parametrize("provider", ALL)
def test_a_user_who_came_between_speaks_behind_the_results(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(calling(call("c1"), call("c2", "read")))
    session.tool_result("c2", "two")
    session.user("Hurry")
    session.tool_result("c1", "one")
    context = context_of(session, provider)
    assert "moved a result to its call (message 5)" in context.repairs
    shown = dumped(context.messages).decode()
    order = ("one", "two", "Hurry") if provider == "gemini" else ("two", "one", "Hurry")
    assert sorted(order, key=shown.index) == [*order], "as they came, unless the order of the calls is demanded"


@pytest.mark.parametrize("provider", ALL)
def test_a_result_that_comes_after_the_next_answer_goes_to_its_call(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(calling(call("slow")), {"role": "assistant", "content": "Still waiting."})
    session.user("And?")
    session.tool_result("slow", "done at last")
    shown = dumped(context_of(session, provider).messages).decode()
    assert shown.index("done at last") < shown.index("Still waiting.") < shown.index("And?")


@pytest.mark.parametrize("provider", ALL)
def test_results_without_a_call_are_dropped(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(
        anthropic_result("gone"),
        {"role": "tool", "tool_call_id": "gone too", "content": "x"},
        {"type": "function_call_output", "call_id": "gone as well", "output": "x"},
        {"role": "user", "parts": [{"functionResponse": {"name": "gone", "response": {}}}]},
        {"role": "tool", "content": "of no call"},
    )
    context = context_of(session, provider)
    assert "dropped a result without a call (messages 2, 3, 4, 5)" in context.repairs
    assert "dropped a tool's message that names no call (message 6)" in context.repairs
    assert len(context.messages) == 1


@pytest.mark.parametrize("provider", ALL)
def test_repeated_ids_are_answered_each_by_its_own(session: Session, provider: str) -> None:
    for turn in range(3):
        session.user(f"Turn {turn}")
        session.append(calling(call("call-0", turn=turn)))
        if turn != 1:
            session.tool_result("call-0", f"result {turn}")
    context = context_of(session, provider)
    shown = dumped(context.messages).decode()
    places = [shown.index(each) for each in ("Turn 0", "result 0", "Turn 1", INTERRUPTED, "Turn 2", "result 2")]
    assert places == sorted(places)


def test_repeated_ids_get_others_where_they_are_refused(session: Session) -> None:
    for _ in range(2):
        session.user("Go")
        session.append(calling(call("call-0")))
        session.tool_result("call-0", "ok")
    asked = [message for message in context_of(session, "anthropic").messages if message["role"] == "assistant"]
    assert [message["content"][0]["id"] for message in asked] == ["call-0", "call-0_2"]
    items = context_of(session, "openai-responses").messages
    assert [item["call_id"] for item in items if "call_id" in item] == ["call-0"] * 2 + ["call-0_2"] * 2
    for provider in ("openai-chat", "gemini"):
        assert context_of(session, provider).repairs == ()


@pytest.mark.parametrize("provider", ALL)
def test_two_calls_of_one_id_in_one_message_get_two(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(calling(call("same", "read"), call("same", "bash")))
    session.append({"role": "tool", "content": "first", "tool_results": [{"call_id": "same"}]})
    session.append({"role": "tool", "content": "second", "tool_results": [{"call_id": "same"}]})
    shown = dumped(context_of(session, provider).messages).decode()
    assert shown.index("first") < shown.index("second")
    assert INTERRUPTED not in shown


@pytest.mark.parametrize("provider", ALL)
def test_a_tool_that_nobody_announced_is_an_assistants_call(session: Session, provider: str) -> None:
    session.user("Go")
    with session.tool("bash", {"command": "ls"}) as running:
        running.result("a.py")
    with pytest.raises(RuntimeError), session.tool("read", {"path": "b"}):
        raise RuntimeError("no such file")
    context = context_of(session, provider)
    assert context.repairs == ()
    shown = dumped(context.messages).decode()
    assert shown.count("bash") >= 1
    assert "RuntimeError: no such file" in shown


@pytest.mark.parametrize("provider", ALL)
def test_a_start_that_was_announced_says_nothing_new(session: Session, provider: str) -> None:
    session.user("Go")
    session.append(calling(call("c1")))
    before = dumped(context_of(session, provider).messages)
    run = session.tool(session.pending_calls()[0])
    run.__enter__()
    assert dumped(context_of(session, provider).messages) == before


@pytest.mark.parametrize("provider", ALL)
def test_results_that_name_the_tool_answer_the_newest_calls_in_order(session: Session, provider: str) -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"n": n}}} for n in (1, 2)]}
    answer = [{"functionResponse": {"name": "f", "response": {"output": f"r{n}"}}} for n in (1, 2)]
    session.user("Go")
    session.append(asked)
    session.user("Again")
    session.append(asked, {"role": "user", "parts": answer})
    shown = dumped(context_of(session, provider).messages).decode()
    assert shown.index("Again") < shown.index("r1") < shown.index("r2")
    assert shown.count(INTERRUPTED) == 2


def test_a_screenshot_cannot_be_made_up(session: Session) -> None:
    session.user("Go")
    session.append(
        {"id": "rs_1", "type": "reasoning", "summary": []},
        {"id": "cu_1", "type": "computer_call", "call_id": "c1", "action": {"type": "wait"}, "status": "completed"},
    )
    context = context_of(session, "openai-responses")
    assert context.messages == [{"role": "user", "content": "Go"}]
    assert len(context.repairs) == 2


@pytest.mark.parametrize(
    ("kind", "fields", "output"),
    [
        ("custom_tool_call", {"name": "py", "input": "1+1"}, "custom_tool_call_output"),
        ("apply_patch_call", {"operation": {"type": "delete_file", "path": "a"}}, "apply_patch_call_output"),
        ("shell_call", {"action": {"commands": ["ls"]}}, "shell_call_output"),
    ],
)
def test_openais_own_tools_are_closed_in_their_own_way(session: Session, kind: str, fields: Any, output: str) -> None:
    session.user("Go")
    session.append({"id": "x_1", "type": kind, "call_id": "c1", "status": "completed", **fields})
    assert context_of(session, "openai-responses").messages[-1]["type"] == output
    for other in ALL:
        context_of(session, other)


# ---------------------------------------------------------------------- roles


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "gemini"])
def test_neighbours_of_one_role_are_joined(session: Session, provider: str) -> None:
    session.user("One")
    session.user("Two")
    session.assistant("Three")
    session.assistant("Four")
    context = context_of(session, provider)
    assert len(context.messages) == 2
    assert context.repairs == (
        "joined neighbouring messages of the user (messages 1, 2)",
        "joined neighbouring messages of the assistant (messages 3, 4)",
    )


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
def test_openai_takes_neighbours_as_they_are(session: Session, provider: str) -> None:
    session.assistant("Hello")
    session.user("One")
    session.user("Two")
    context = context_of(session, provider)
    assert context.repairs == ()
    assert [message["content"] for message in context.messages] == ["Hello", "One", "Two"]


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "gemini"])
def test_the_user_begins(session: Session, provider: str) -> None:
    session.assistant("Hello")
    context = context_of(session, provider)
    assert BEGINNING in dumped(context.messages[0]).decode()
    assert context.repairs == ("added a user message before the first message (message 1)",)


@pytest.mark.parametrize("provider", ALL)
def test_an_unknown_role_is_the_users(session: Session, provider: str) -> None:
    session.append({"role": "critic", "content": "Bad."})
    assert context_of(session, provider).repairs == ("sent role 'critic' as user (message 1)",)


# ---------------------------------------------------------------------- content


@pytest.mark.parametrize("role", ["tool", "assistant"])
def test_anthropics_results_go_out_as_the_users(session: Session, role: str) -> None:
    """Programs of many providers store results under other roles."""
    session.user("Look.")
    session.append(anthropic_calling("c1"), {**anthropic_result("c1"), "role": role})
    found = context_of(session, "anthropic")
    assert found.messages[2] == anthropic_result("c1")
    assert found.repairs == (() if role == "assistant" else (f"sent role {role!r} as user (message 3)",))


@pytest.mark.parametrize(
    ("provider", "given"),
    [
        ("anthropic", anthropic_calling("c1")),
        (
            "openai-chat",
            {
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
            },
        ),
        (
            "openai-responses",
            {"type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
        ),
    ],
)
def test_an_answer_goes_out_as_the_assistants(session: Session, provider: str, given: dict[str, Any]) -> None:
    session.user("Look.")
    session.append({**given, "role": "model"})
    found = context_of(session, provider)
    assert found.messages[1] == {**given, "role": "assistant"}
    assert found.repairs[0] == "sent role 'model' as assistant (message 2)"


def test_a_message_of_responses_has_a_role_that_is_known(session: Session) -> None:
    said = {"type": "message", "role": "tool", "content": [{"type": "input_text", "text": "It rains."}]}
    session.append(said)
    found = context_of(session, "openai-responses")
    assert found.messages == [{**said, "role": "user"}]
    assert found.repairs == ("sent role 'tool' as user (message 1)",)


@pytest.mark.parametrize("provider", ALL)
def test_empty_texts_and_messages_are_removed(session: Session, provider: str) -> None:
    session.user("")
    session.user("Hi")
    session.append({"role": "assistant", "content": [{"type": "text", "text": "", "citations": None}]})
    session.append({"role": "assistant", "content": None, "refusal": None})
    session.append({"role": "model", "parts": [{"text": ""}]})
    context = context_of(session, provider)
    assert len(context.messages) == 1
    assert len(context.repairs) == 2


def test_anthropic_refuses_white_space(session: Session) -> None:
    session.user("Hi")
    session.assistant(" \n")
    session.user("Hm")
    session.assistant("So it is. \n")
    context = context_of(session, "anthropic")
    assert context.messages[-1] == {"role": "assistant", "content": "So it is."}
    assert "took white space off the end of the last answer (message 4)" in context.repairs


@pytest.mark.parametrize("provider", ALL)
def test_half_characters_are_replaced(session: Session, provider: str) -> None:
    session.user("Go")
    session.user("a\ud83db")
    session.append(anthropic_calling("t1"))
    session.tool_result("t1", {"out\udc00": ["\ud83d", b"\xff", float("nan")]})
    session.append({"role": "assistant", "content": "x\ud800", "refusal": None})
    context = context_of(session, provider)
    assert "a\ufffdb" in dumped(context.messages).decode()
    assert "replaced what JSON cannot hold (messages 2, 4, 5)" in context.repairs


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("status", ["interrupted", "cancelled"])
def test_half_an_answer_is_kept_and_marked(session: Session, provider: str, status: str) -> None:
    session.user("Go")
    session.append({**calling(call("c1"), text="I wou"), "status": status})
    context = context_of(session, provider)
    shown = dumped(context.messages).decode()
    assert shown.index("I wou") < shown.index(f"[{status}]") < shown.index("c1")
    assert context.repairs == (
        f"marked an answer as {status} (message 2)",
        "closed a call without a result (message 2)",
    )


def test_ids_are_rewritten_alike_for_call_and_result(session: Session) -> None:
    long = "call_" + "x" * 60
    session.user("Go")
    session.append(calling(call("functions.bash:0"), call(long)))
    session.tool_result("functions.bash:0", "one")
    session.tool_result(long, "two")
    anthropic, chat = context_of(session, "anthropic"), context_of(session, "openai-chat")
    assert anthropic.messages[1]["content"][1]["id"] == long
    assert chat.messages[1]["tool_calls"][0]["id"] == "functions.bash:0"
    assert anthropic.repairs == chat.repairs == ("changed the id of a call (message 2)",)


@pytest.mark.parametrize("provider", ALL)
def test_arguments_of_any_kind_are_sent(session: Session, provider: str) -> None:
    given = [None, "free text", [1, 2], {"a": 1}]
    session.user("Go")
    session.append(calling(*({"id": f"c{n}", "name": "a.b c", "arguments": each} for n, each in enumerate(given))))
    context_of(session, provider)


@pytest.mark.parametrize("provider", ALL)
def test_thinking_of_another_provider_is_left_out_and_named(session: Session, provider: str) -> None:
    thoughts: dict[str, dict[str, Any]] = {
        "anthropic": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "SECRET", "signature": "s"}, {"type": "text", "text": "A"}],
        },
        "openai-chat": {"role": "assistant", "content": "B", "reasoning_content": "SECRET"},
        "openai-responses": {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "SECRET"}]},
        "gemini": {"role": "model", "parts": [{"text": "SECRET", "thought": True}, {"text": "D"}]},
        "bedrock": {
            "role": "assistant",
            "content": [{"reasoningContent": {"reasoningText": {"text": "SECRET"}}}, {"text": "E"}],
        },
    }
    session.user("Go")
    for other, message in thoughts.items():
        if other != provider:
            session.append(message)
    context = context_of(session, provider)
    assert "SECRET" not in dumped(context.messages).decode()
    left = [sentence for sentence in context.repairs if sentence.startswith("left out thinking of ")]
    assert len(left) == len(ALL) - 1


def test_anthropic_takes_no_thinking_that_is_unsigned_or_last(session: Session) -> None:
    session.user("Go")
    unsigned = {"type": "thinking", "thinking": "half", "signature": ""}
    signed = {"type": "thinking", "thinking": "whole", "signature": "s"}
    session.append({"role": "assistant", "content": [unsigned, {"type": "text", "text": "A"}, signed]})
    assert context_of(session, "anthropic").messages[-1]["content"] == [{"type": "text", "text": "A"}]
    session.append({"role": "assistant", "content": [signed]})
    assert signed not in context_of(session, "anthropic").messages[-1]["content"]


def test_thinking_between_other_blocks_stays_where_the_model_had_it(session: Session) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    text = {"type": "text", "text": "A"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
    session.user("Go")
    session.append({"role": "assistant", "content": [thought]})
    session.append({"role": "assistant", "content": [text]})
    session.append({"role": "assistant", "content": [thought, use]})
    assert context_of(session, "anthropic").messages[1]["content"] == [thought, text, thought, use]
    session.user("Stop")
    session.append({"role": "assistant", "content": [text, thought, text]})
    context = context_of(session, "anthropic")
    assert context.messages[-1]["content"] == [text, text]
    assert "left out thinking that is unsigned or in a wrong place (message 6)" in context.repairs


def test_fields_and_blocks_of_other_programs_are_left_out(session: Session) -> None:
    """The API says: Extra inputs are not permitted."""
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "A", "own": 1}]}
    session.user("Go")
    session.append({"role": "assistant", "content": [*anthropic_calling("toolu_1")["content"], {"type": "toolCall"}]})
    session.append({"role": "user", "content": [{**answer, "name": "bash"}]})
    context = context_of(session, "anthropic")
    assert context.messages[-1]["content"] == [{**answer, "content": [{"type": "text", "text": "A"}]}]
    assert context.messages[-2] == anthropic_calling("toolu_1")
    assert context.repairs == (
        "left out toolCall, which anthropic does not know (message 2)",
        "left out fields that anthropic does not know: own, name (message 3)",
    )


@pytest.mark.trial("T64")
def test_what_looks_like_an_answer_of_anthropics_may_have_fields_of_others(session: Session) -> None:
    """Gateways and programs add theirs to what the API said; nobody can tell who added what."""
    session.user("Go")
    new = {"type": "text", "text": "A", "a_field_of_tomorrow": 1}
    session.append({"type": "message", "role": "assistant", "content": [new], "stop_reason": "end_turn", "model": "m"})
    context = context_of(session, "anthropic")
    assert context.messages[-1]["content"] == [{"type": "text", "text": "A"}]
    assert context.repairs == ("left out fields that anthropic does not know: a_field_of_tomorrow (message 2)",)
    assert session.messages()[-1].content == [new]


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
def test_calls_that_were_stored_in_a_wrong_shape_are_put_right(session: Session, provider: str) -> None:
    session.user("Go")
    function = {"name": "bash", "arguments": {"a": 1}}
    wrong = {
        "openai-chat": {"role": "assistant", "tool_calls": [{"index": 0, "id": "c1", "function": function}]},
        "openai-responses": {"type": "function_call", "call_id": "c1", "summary": "S", **function},
    }
    session.append(wrong[provider])
    context = context_of(session, provider)
    assert f"put calls right that {provider} does not allow (message 2)" in context.repairs
    assert json.dumps('{"a":1}') in dumped(context.messages).decode()


def test_only_the_newest_marks_for_the_cache_stay(session: Session) -> None:
    for turn in range(6):
        marked = {"type": "text", "text": f"Turn {turn}", "cache_control": {"type": "ephemeral"}}
        session.append({"role": "user", "content": [marked]})
        session.assistant("Yes.")
    context = context_of(session, "anthropic")
    asked = [message["content"][0] for message in context.messages if message["role"] == "user"]
    assert ["cache_control" in block for block in asked] == [False] * 4 + [True] * 2
    assert context.repairs == ("left out old cache_control marks (messages 1, 3, 5, 7)",)


def test_an_image_is_sent_as_what_it_is(session: Session) -> None:
    source = {"type": "base64", "media_type": "image/jpeg", "data": PNG}
    session.append({"role": "user", "content": [{"type": "image", "source": source}]})
    for provider in ALL:
        context = context_of(session, provider)
        shown = dumped(context.messages).decode()
        assert "image/png" in shown or '"format": "png"' in shown
        assert context.repairs == ("sent image/jpeg as the image/png that it is (message 1)",)


@pytest.mark.parametrize("data", ["no base64!", "x" * (5 * 1024 * 1024 + 4)])
def test_an_image_that_would_be_refused_is_left_out(session: Session, data: str) -> None:
    """One such image would make every later request fail."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    session.append({"role": "user", "content": [{"type": "image", "source": source}]})
    assert context_of(session, "anthropic").messages[0]["content"] == "[left out: image (image/png)]"


def test_a_failure_holds_no_image(session: Session) -> None:
    """The API says: all content must be type `text` if `is_error` is true."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image], "is_error": True}
    session.user("Go")
    session.append(anthropic_calling("toolu_1"), {"role": "user", "content": [result]})
    context = context_of(session, "anthropic")
    assert context.messages[-1]["content"] == [{**result, "content": "[left out: image (image/png)]"}]


def test_items_of_openai_that_are_there_twice_go_without_their_ids(session: Session) -> None:
    """The API says: Duplicate item found with id msg_1."""
    text = {"type": "output_text", "text": "A", "annotations": []}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    session.user("Go")
    session.append(thought, said, thought, said)
    first, second = (item for item in context_of(session, "openai-responses").messages if item.get("type") == "message")
    assert first == said
    assert second == {key: said[key] for key in said if key != "id"}


def test_half_of_a_servers_tool_is_left_out(session: Session) -> None:
    half = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    session.user("Go")
    session.append({"role": "assistant", "content": [{"type": "text", "text": "A"}, half]})
    assert half in context_of(session, "anthropic").messages[-1]["content"], "a paused turn goes on from here"
    session.user("Well?")
    assert context_of(session, "anthropic").messages[1]["content"] == [{"type": "text", "text": "A"}]


@pytest.mark.parametrize("provider", ALL)
def test_images_go_to_every_provider(session: Session, provider: str) -> None:
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    session.append({"role": "user", "content": [png]})
    session.append(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]}
    )
    session.append(
        {
            "role": "user",
            "content": [{"type": "input_image", "detail": "low", "image_url": f"data:image/png;base64,{PNG}"}],
        }
    )
    session.append({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]})
    session.user("See", attachments=[{"data": base64.b64decode(PNG), "name": "a.png"}])
    session.user("And", attachments=[{"data": b"print()", "name": "a.py"}])
    context = context_of(session, provider)
    shown = dumped(context.messages).decode()
    assert shown.count(PNG) == 5
    assert "a.py:\\nprint()" in shown


@pytest.mark.parametrize("provider", ALL)
def test_what_a_provider_cannot_take_is_named_in_its_place(session: Session, provider: str) -> None:
    session.user("Hear", attachments=[{"data": b"\0", "name": "a.flac", "mime_type": "audio/flac"}])
    session.user("Look", attachments=[{"url": "https://example.org/a.bin", "name": "a.bin"}])
    context = context_of(session, provider)
    assert "[left out: document a.bin]" in dumped(context.messages).decode()
    assert any("a.bin" in sentence for sentence in context.repairs)


@pytest.mark.parametrize("provider", ALL)
def test_an_image_that_a_tool_gave_is_sent_or_named(session: Session, provider: str) -> None:
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    session.user("Go")
    session.append(anthropic_calling("t1"))
    session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [png]}]})
    shown = dumped(context_of(session, provider).messages).decode()
    assert (PNG in shown) == (provider in ("anthropic", "bedrock", "openai-responses"))
    assert (PNG in shown) != ("[left out: image (image/png)]" in shown)


def test_gemini_is_told_that_calls_from_elsewhere_have_no_signature(session: Session) -> None:
    session.user("Go")
    session.append(calling(call("c1"), call("c2")))
    parts = context_of(session, "gemini").messages[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]
    old = context_of(session, "gemini", model="gemini-2.5-flash").messages[1]["parts"]
    assert not any("thoughtSignature" in part for part in old)


# ---------------------------------------------------------------------- compaction, erasure


@pytest.mark.parametrize("provider", ALL)
def test_a_summary_stands_for_what_it_covers(session: Session, provider: str) -> None:
    session.user("Old words")
    session.append(anthropic_calling("t1"))
    session.append(anthropic_result("t1"))
    session.assistant("New words")
    session.compact(2, "We looked around.")
    context = context_of(session, provider)
    shown = dumped(context.messages).decode()
    assert "summary" in shown
    assert "We looked around." in shown
    assert "Old words" not in shown
    assert "New words" in shown
    assert "dropped a result without a call (message 3)" in context.repairs
    assert len(session.messages()) == 4
    session.rewind(4)
    assert "Old words" in dumped(context_of(session, provider).messages).decode()


def test_what_a_compaction_cut_from_its_reasoning_is_written_anew(session: Session) -> None:
    session.user("Go")
    session.append(
        {"id": "rs_1", "type": "reasoning", "summary": []},
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
    )
    session.compact(2, "Thought.")
    assert "id" not in context_of(session, "openai-responses").messages[1]


@pytest.mark.parametrize("provider", ALL)
def test_erased_and_unreadable_messages_are_skipped(session: Session, provider: str) -> None:
    session.user("Hi")
    session.append({"role": "assistant", "content": "x", "refusal": None})
    sources = list(session.messages())
    erased = msgspec.structs.replace(sources[0], data=None)
    unreadable = msgspec.structs.replace(sources[1], raw=b"{")
    context = build(provider, [erased, unreadable])
    assert context.messages == []
    assert context.repairs == (
        "skipped an erased message (message 1)",
        "skipped a message that cannot be read (message 2)",
    )


@pytest.mark.parametrize("provider", ALL)
def test_a_form_that_only_a_newer_takeback_knows_is_read_plainly(session: Session, provider: str) -> None:
    session.append({"role": "user", "content": "Hi", "name": "ann"})
    (message,) = session.messages()
    data = json.dumps({"role": "user", "form": "brand-new"}).encode()
    newer = msgspec.structs.replace(message, data=data)
    context = build(provider, [newer])
    assert "Hi" in dumped(context.messages).decode()


def test_a_field_that_codex_keeps_for_itself_is_not_sent(session: Session) -> None:
    part = {"type": "input_text", "text": "Hi"}
    own = {"internal_chat_message_metadata_passthrough": {"a": 1}}
    session.append({"type": "message", "role": "user", "content": [part], **own})
    context = context_of(session, "openai-responses")
    assert context.messages == [{"type": "message", "role": "user", "content": [part]}]
    assert context.repairs == (
        "left out fields that openai-responses does not know: internal_chat_message_metadata_passthrough (message 1)",
    )
