"""The items of OpenAI's Responses API, and their fields at every level."""

from __future__ import annotations

from ..known import UNSENT, OneOf, Shape, shape

_CACHE = shape("mode ttl")
_GIVEN: dict[str, Shape] = {
    "input_text": shape("type text", prompt_cache_breakpoint=_CACHE),
    "input_image": shape("type image_url file_id detail", prompt_cache_breakpoint=_CACHE),
    "input_file": shape("type file_id file_data file_url filename detail", prompt_cache_breakpoint=_CACHE),
}
_ANNOTATION = OneOf(
    {
        "file_citation": shape("type file_id filename index"),
        "url_citation": shape("type url title start_index end_index"),
        "container_file_citation": shape("type container_id file_id filename start_index end_index"),
        "file_path": shape("type file_id index"),
    }
)
_SAID: dict[str, Shape] = {
    "output_text": shape(
        "type text",
        annotations=_ANNOTATION,
        logprobs=shape("token bytes logprob", top_logprobs=shape("token bytes logprob")),
        parsed=UNSENT,
    ),
    "refusal": shape("type refusal"),
}
PARTS = frozenset({*_GIVEN, *_SAID})
_CALLER = OneOf({"direct": shape("type"), "program": shape("type caller_id")})
_OUTPUT = OneOf(_GIVEN, others=True)
_AT = "x y keys"
_ACTION = OneOf(
    {
        "click": shape(f"type button {_AT}"),
        "double_click": shape(f"type {_AT}"),
        "drag": shape("type keys", path=shape("x y")),
        "keypress": shape("type keys"),
        "move": shape(f"type {_AT}"),
        "screenshot": shape("type"),
        "scroll": shape(f"type scroll_x scroll_y {_AT}"),
        "type": shape("type text"),
        "wait": shape("type"),
    },
    vital=True,
)
_CHECKS = shape("id code message")


def _item(names: str, **inside: Shape) -> dict[str, Shape]:
    """Return the shape of an item: with what every one has, and what only the answers of the API say."""
    return shape(f"type id {names}", created_by=UNSENT, **inside)


ITEMS: dict[str, dict[str, Shape]] = {
    "message": _item("role status phase", content=OneOf({**_GIVEN, **_SAID}, others=True), parsed=UNSENT),
    "function_call": _item(
        "call_id name arguments namespace status async", caller=_CALLER, parsed_arguments=UNSENT, async_=UNSENT
    ),
    "function_call_output": _item("call_id name namespace status", caller=_CALLER, output=_OUTPUT),
    "custom_tool_call": _item("call_id name input namespace async", caller=_CALLER, status=UNSENT, async_=UNSENT),
    "custom_tool_call_output": _item("call_id", caller=_CALLER, output=_OUTPUT, status=UNSENT, name=UNSENT),
    "reasoning": _item(
        "encrypted_content status",
        summary=OneOf({"summary_text": shape("type text")}),
        content=OneOf({"reasoning_text": shape("type text")}),
    ),
    "item_reference": shape("type id"),
    "compaction": _item("encrypted_content"),
    "compaction_trigger": shape("type id"),
    "additional_tools": _item("role tools"),
    "configuration_update": _item("text", reasoning=shape("effort")),
    "file_search_call": _item("queries status", results=shape("attributes file_id filename score text")),
    "web_search_call": _item(
        "status",
        action=OneOf(
            {
                "search": shape("type query queries", sources=OneOf({"url": shape("type url")})),
                "open_page": shape("type url"),
                "find_in_page": shape("type url pattern"),
            },
            vital=True,
        ),
    ),
    "image_generation_call": _item(
        "status result action background output_format quality revised_prompt size",
        error=shape("code message param type", moderation_details=shape("categories moderation_stage")),
        svg_usage=shape("input_tokens model output_tokens reasoning_tokens total_tokens"),
    ),
    "code_interpreter_call": _item(
        "code container_id status",
        outputs=OneOf({"logs": shape("type logs"), "image": shape("type url")}),
    ),
    "computer_call": _item("call_id status", pending_safety_checks=_CHECKS, action=_ACTION, actions=_ACTION),
    "computer_call_output": _item(
        "call_id status",
        acknowledged_safety_checks=_CHECKS,
        output=OneOf({"computer_screenshot": shape("type file_id image_url")}, vital=True),
    ),
    "local_shell_call": _item("call_id status", action=shape("type command env timeout_ms user working_directory")),
    "local_shell_call_output": _item("output status"),
    "shell_call": _item(
        "call_id environment status", caller=_CALLER, action=shape("commands max_output_length timeout_ms")
    ),
    "shell_call_output": _item(
        "call_id max_output_length status",
        caller=_CALLER,
        output=shape(
            "stdout stderr",
            outcome=OneOf({"timeout": shape("type"), "exit": shape("type exit_code")}, vital=True),
            created_by=UNSENT,
        ),
    ),
    "apply_patch_call": _item("call_id status", caller=_CALLER, operation=shape("type path diff")),
    "apply_patch_call_output": _item("call_id status output", caller=_CALLER),
    "tool_search_call": _item("call_id arguments execution status"),
    "tool_search_output": _item("call_id tools execution status"),
    "mcp_list_tools": _item("server_label error", tools=shape("input_schema name annotations description")),
    "mcp_approval_request": _item("server_label name arguments"),
    "mcp_approval_response": _item("approval_request_id approve reason"),
    "mcp_call": _item("server_label name arguments approval_request_id error output status"),
    "program": _item("call_id code fingerprint"),
    "program_output": _item("call_id result status"),
}
