"""The blocks of Anthropic's Messages API and their fields, those of its beta headers too."""

from __future__ import annotations

from ..known import UNSENT, OneOf, Shape, shape

_CACHE = shape("type ttl")
_CALLER = OneOf(
    {
        "direct": shape("type"),
        "code_execution_20250825": shape("type tool_id"),
        "code_execution_20260120": shape("type tool_id"),
    }
)
_CITED = OneOf(
    {
        "char_location": shape(
            "type cited_text document_index document_title start_char_index end_char_index", file_id=UNSENT
        ),
        "page_location": shape(
            "type cited_text document_index document_title start_page_number end_page_number", file_id=UNSENT
        ),
        "content_block_location": shape(
            "type cited_text document_index document_title start_block_index end_block_index", file_id=UNSENT
        ),
        "web_search_result_location": shape("type cited_text encrypted_index title url"),
        "search_result_location": shape(
            "type cited_text search_result_index source title start_block_index end_block_index"
        ),
    }
)
_CITES = shape("enabled")
_TEXT = shape("type text", cache_control=_CACHE, citations=_CITED, parsed_output=UNSENT)
_IMAGE_SOURCE: dict[str, Shape] = {
    "base64": shape("type media_type data"),
    "url": shape("type url"),
    "file": shape("type file_id"),
}
_IMAGE = shape(
    "type",
    cache_control=_CACHE,
    source=OneOf(_IMAGE_SOURCE, vital=True),
    transformations=shape("oversized_image"),
)
_INSIDE = OneOf({"text": _TEXT, "image": _IMAGE})
_DOCUMENT = shape(
    "type title context",
    cache_control=_CACHE,
    citations=_CITES,
    source=OneOf(
        {**_IMAGE_SOURCE, "text": shape("type media_type data"), "content": shape("type", content=_INSIDE)}, vital=True
    ),
)
_SEARCHED = shape("type source title", cache_control=_CACHE, citations=_CITES, content=OneOf({"text": _TEXT}))
_REFERENCE = shape("type tool_name", cache_control=_CACHE)
_BROWSER = shape(
    "type",
    cache_control=_CACHE,
    tabs=shape("tab_id title url active"),
    state_changes=OneOf(
        {
            "tab_opened": shape("type tab_id"),
            "download_started": shape("type download_id url"),
            "download_completed": shape("type download_id url path size_bytes"),
            "download_failed": shape("type download_id url error"),
        }
    ),
)
_GIVEN = OneOf(
    {
        "text": _TEXT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "search_result": _SEARCHED,
        "tool_reference": _REFERENCE,
        "browser_state": _BROWSER,
    }
)
_ERROR = shape("type error_code")
_SAID_ERROR = shape("type error_code error_message")


def _result(contents: dict[str, Shape], **more: Shape) -> dict[str, Shape]:
    """Return the shape of what a server's tool gave."""
    return shape("type tool_use_id", cache_control=_CACHE, content=OneOf(contents, vital=True), **more)


def _ran(name: str) -> dict[str, Shape]:
    output = OneOf({f"{name}_output": shape("type file_id")})
    ran = shape("type return_code stderr stdout", content=output)
    return {f"{name}_tool_result_error": _ERROR, f"{name}_result": ran}


BLOCKS = OneOf(
    {
        "text": _TEXT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "search_result": _SEARCHED,
        "thinking": shape("type thinking signature"),
        "redacted_thinking": shape("type data"),
        "tool_use": shape("type id name input toolset_name", cache_control=_CACHE, caller=_CALLER),
        "tool_result": shape(
            "type tool_use_id is_error toolset_name",
            cache_control=_CACHE,
            content=_GIVEN,
        ),
        "server_tool_use": shape("type id name input", cache_control=_CACHE, caller=_CALLER),
        "web_search_tool_result": _result(
            {
                "web_search_result": shape("type url title encrypted_content page_age"),
                "web_search_tool_result_error": _ERROR,
            },
            caller=_CALLER,
        ),
        "web_fetch_tool_result": _result(
            {
                "web_fetch_result": shape("type url retrieved_at", content=OneOf({"document": _DOCUMENT}, vital=True)),
                "web_fetch_tool_result_error": _ERROR,
            },
            caller=_CALLER,
        ),
        "code_execution_tool_result": _result(
            {
                **_ran("code_execution"),
                "encrypted_code_execution_result": shape(
                    "type encrypted_stdout return_code stderr",
                    content=OneOf({"code_execution_output": shape("type file_id")}),
                ),
            }
        ),
        "bash_code_execution_tool_result": _result(_ran("bash_code_execution")),
        "text_editor_code_execution_tool_result": _result(
            {
                "text_editor_code_execution_tool_result_error": _SAID_ERROR,
                "text_editor_code_execution_view_result": shape(
                    "type content file_type num_lines start_line total_lines"
                ),
                "text_editor_code_execution_create_result": shape("type is_file_update"),
                "text_editor_code_execution_str_replace_result": shape(
                    "type lines new_lines new_start old_lines old_start"
                ),
            }
        ),
        "tool_search_tool_result": _result(
            {
                "tool_search_tool_result_error": _SAID_ERROR,
                "tool_search_tool_search_result": shape("type", tool_references=OneOf({"tool_reference": _REFERENCE})),
            }
        ),
        "container_upload": shape("type file_id", cache_control=_CACHE),
        "tool_reference": _REFERENCE,
        "browser_state": _BROWSER,
        # these need a beta header
        "mcp_tool_use": shape("type id name input server_name", cache_control=_CACHE),
        "mcp_tool_result": shape("type tool_use_id is_error", cache_control=_CACHE, content=OneOf({"text": _TEXT})),
        "compaction": shape("type content encrypted_content signature tool_changes", cache_control=_CACHE),
    }
)
# What an answer has beside its content is not sent back, and nothing need be said about that.
_OF_ANSWERS = (
    "id type model usage stop_reason stop_sequence stop_details container context_management diagnostics"
    " input_transformations"
)
FIELDS = shape(f"role {_OF_ANSWERS}", content=BLOCKS)
