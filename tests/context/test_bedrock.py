"""What Converse demands beside turns and pairs: bytes, names of documents, limits, reasoning, cache points."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Session

from ._bedrock import PDF, PNG, POINT, message, paper, result, thought, use
from ._checks import context_of, dumped

pytestmark = pytest.mark.feature("F3")
CLAUDE, NOVA = "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0"


def picture(data: Any) -> dict[str, Any]:
    return {"image": {"format": "png", "source": {"bytes": data}}}


def names(found: takeback.Context) -> list[str]:
    blocks = [block for each in found.messages for block in each["content"]]
    inner = [each for block in blocks for each in block.get("toolResult", {}).get("content", [])]
    return [block["document"]["name"] for block in (*blocks, *inner) if "document" in block]


# ---------------------------------------------------------------------- bytes


def test_bytes_and_base64_are_the_same_message(session: Session) -> None:
    """boto3 has bytes where the wire has base64; both are kept as the wire has it, and boto3 gets bytes."""
    spelled = base64.b64encode(PNG).decode()
    first, second = session.append(message("user", picture(PNG)), message("user", picture(spelled)))
    assert first.raw == second.raw == dumped(message("user", picture(spelled))).replace(b" ", b"")
    context = context_of(session, "bedrock")
    assert context.messages == [message("user", picture(spelled), picture(spelled))]
    assert context.request()["messages"] == [message("user", picture(PNG), picture(PNG))]
    json.dumps(context.messages)


def test_every_place_of_bytes_is_found_and_data_of_tools_is_not(session: Session) -> None:
    data = {"image": {"source": {"bytes": "c2VhbGVk"}}, "redactedContent": "c2VhbGVk"}
    sent = [
        message("user", {"text": "Go"}, {"guardContent": {"image": picture(PNG)["image"]}}, paper()),
        message("assistant", {"reasoningContent": {"redactedContent": b"sealed"}}, use("a", input=data)),
        message("user", result("a", {"json": data}, picture(PNG), paper("Other"), {"text": "See."})),
    ]
    session.append(*sent)
    found = context_of(session, "bedrock")
    assert (found.repairs, found.request()["messages"]) == ((), sent)


def test_attachments_are_sent_as_media(session: Session) -> None:
    files = [("a.png", PNG), ("John's report.pdf", PDF), ("c.txt", b"Words."), ("d.mp4", b"film"), ("e.zip", b"PK")]
    session.user("Look", attachments=[{"name": name, "data": data} for name, data in files])
    found = context_of(session, "bedrock")
    kinds = [next(iter(block)) for block in found.request()["messages"][0]["content"]]
    assert kinds == ["text", "image", "document", "text", "video", "text"]
    assert names(found) == ["John s report"]
    assert "[left out: document e.zip]" in dumped(found.messages).decode()


def test_what_lies_in_s3_is_sent_from_there_and_what_is_on_the_web_is_not(session: Session) -> None:
    session.user("Look", attachments=[{"url": "s3://bucket/a.png", "name": "a.png", "mime_type": "image/png"}])
    session.user("Look", attachments=[{"url": "https://a.org/b.png", "name": "b.png", "mime_type": "image/png"}])
    shown = dumped(context_of(session, "bedrock").messages).decode()
    assert '"s3Location": {"uri": "s3://bucket/a.png"}' in shown
    assert "[left out: image b.png]" in shown
    for other in ("anthropic", "openai-chat", "openai-responses"):
        assert "s3://" not in dumped(context_of(session, other).messages).decode()


# ---------------------------------------------------------------------- documents and images


def test_documents_have_names_that_are_taken_and_differ(session: Session) -> None:
    said = {"text": "Read."}
    session.append(message("user", paper("a.pdf"), paper("A"), paper("two  blanks"), said))
    session.append(message("assistant", use("t")), message("user", result("t", {"text": "x"}, paper("ünïcode_"))))
    found = context_of(session, "bedrock")
    assert names(found) == ["a", "A 2", "two blanks", "n code"]
    assert found.repairs == ("gave a document another name (messages 1, 3)",)


def test_a_document_stands_beside_a_text(session: Session) -> None:
    session.append(message("user", paper()))
    found = context_of(session, "bedrock")
    assert found.messages[0]["content"][1] == {"text": "(See the document.)"}
    assert found.repairs == ("put a text beside a document (message 1)",)


def test_of_too_many_documents_the_newest_stay(session: Session) -> None:
    for number in range(7):
        session.append(message("user", {"text": "Read."}, paper(f"p{number}")), message("assistant", {"text": "Yes."}))
    found = context_of(session, "bedrock")
    assert names(found) == [f"p{number}" for number in range(2, 7)]
    assert found.repairs == ("left out media beyond the newest 5 (messages 1, 3)",)
    assert "[left out: document p1]" in dumped(found.messages).decode()


def test_of_too_many_images_in_a_message_the_last_stay(session: Session) -> None:
    session.append(message("user", {"text": "Look."}, *[picture(PNG)] * 23))
    found = context_of(session, "bedrock")
    assert sum("image" in block for block in found.messages[0]["content"]) == 20


def test_documents_of_words_arrive_elsewhere_as_words(session: Session) -> None:
    table = {"document": {"format": "csv", "name": "t", "source": {"bytes": b"a,b\n1,2"}}}
    session.append(message("user", table, {"text": "Sum?"}))
    for other in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        context = context_of(session, other)
        assert json.dumps("t:\na,b\n1,2").strip('"') in dumped(context.messages).decode()
        assert context.repairs == ()


# ---------------------------------------------------------------------- reasoning and marks


def test_reasoning_without_a_signature_is_for_those_who_sign_nothing(session: Session) -> None:
    session.append(message("user", {"text": "Hm?"}), message("assistant", thought(), {"text": "So."}))
    assert "Let me see." in dumped(context_of(session, "bedrock", model=NOVA).messages).decode()
    context = context_of(session, "bedrock", model=CLAUDE)
    assert context.messages[1] == message("assistant", {"text": "So."})
    assert context.repairs == ("left out thinking that is not signed (message 2)",)


def test_reasoning_begins_an_answer_and_never_ends_it(session: Session) -> None:
    signed = thought(signature="s")
    session.append(message("user", {"text": "Hm?"}), message("assistant", {"text": "A"}, signed, {"text": "B"}))
    session.append(message("user", {"text": "Hm?"}), message("assistant", signed))
    session.append(message("user", {"text": "Hm?"}), message("assistant", signed, {"text": "C"}, signed, use("t")))
    answers = [each for each in context_of(session, "bedrock").messages if each["role"] == "assistant"]
    assert answers == [
        message("assistant", {"text": "A"}, {"text": "B"}),
        message("assistant", signed, {"text": "C"}, signed, use("t")),
    ]


def test_the_newest_cache_points_stay_and_nobody_else_hears_of_them(session: Session) -> None:
    for turn in range(4):
        session.append(message("user", {"text": f"Turn {turn}"}, POINT), message("assistant", {"text": "Yes."}))
    context = context_of(session, "bedrock")
    asked = [each["content"] for each in context.messages if each["role"] == "user"]
    assert [POINT in content for content in asked] == [False, False, True, True]
    assert context.repairs == ("left out cache points that are old or mark nothing (messages 1, 3)",)
    assert context_of(session, "anthropic").repairs == ()


def test_an_empty_result_says_so(session: Session) -> None:
    empty, blank = {"toolResult": {"toolUseId": "a", "content": []}}, result("b", {"text": " "}, status="error")
    session.append(message("user", {"text": "Go"}), message("assistant", use("a"), use("b")))
    session.append(message("user", empty, blank))
    given = context_of(session, "bedrock").messages[-1]["content"]
    assert [each["toolResult"]["content"] for each in given] == [
        [{"text": "(no output)"}],
        [{"text": "failed without a word"}],
    ]


def test_fields_of_others_are_left_out(session: Session) -> None:
    session.append(message("user", {"text": "Go"}), message("assistant", use("a", signature="x")))
    context = context_of(session, "bedrock")
    assert context.messages[1] == message("assistant", use("a"))
    assert "left out fields that bedrock does not know: signature (message 2)" in context.repairs


def test_a_response_counts_and_is_there_after_a_restart(tmp_path: Path) -> None:
    said = message("assistant", thought(signature="s"), {"text": "Hello."})
    used = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 115, "cacheReadInputTokens": 100}
    with takeback.open(str(tmp_path / "a.db")) as store:
        session = store.create_session("s")
        session.append(message("user", {"text": "Hi"}))
        session.append({"output": {"message": said}, "stopReason": "end_turn", "usage": used, "modelId": CLAUDE})
    with takeback.open(str(tmp_path / "a.db")) as store:
        session = store.get_session("s")
        assert session.stats().usage == takeback.Usage(110, 5, cache_read_tokens=100)
        assert session.messages()[-1].model == CLAUDE
        assert context_of(session, "bedrock", model=CLAUDE).messages[-1] == said
