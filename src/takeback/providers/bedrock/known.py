"""The blocks of Converse and their fields, at every level."""

from __future__ import annotations

from ..known import Shape, shape

_S3 = shape("uri bucketOwner")
_SOURCE = shape("bytes", s3Location=_S3)
_ENABLED = shape("enabled")
_TEXT = shape("text")
_RANGE = shape("documentIndex start end")
_IMAGE = shape("format", source=_SOURCE, error=shape("message"))
_DOCUMENT = shape(
    "format name context",
    citations=_ENABLED,
    source=shape("bytes text", s3Location=_S3, content=_TEXT),
)
_VIDEO = shape("format", source=_SOURCE)
_SEARCHED = shape("source title", citations=_ENABLED, content=_TEXT)
_CITED = shape(
    "title source",
    sourceContent=_TEXT,
    location=shape(
        web=shape("url domain"),
        documentChar=_RANGE,
        documentPage=_RANGE,
        documentChunk=_RANGE,
        searchResultLocation=shape("searchResultIndex start end"),
    ),
)
_TOOL = shape(tool=shape("type name serverName"))
BLOCKS: dict[str, Shape] = shape(
    "text",
    image=_IMAGE,
    document=_DOCUMENT,
    video=_VIDEO,
    audio=_IMAGE,
    toolUse=shape("toolUseId name input type"),
    toolResult=shape(
        "toolUseId status type",
        content=shape("json text", image=_IMAGE, document=_DOCUMENT, video=_VIDEO, searchResult=_SEARCHED),
    ),
    guardContent=shape(text=shape("text qualifiers"), image=shape("format", source=shape("bytes"))),
    cachePoint=shape("type ttl"),
    reasoningContent=shape("redactedContent", reasoningText=shape("text signature")),
    citationsContent=shape(content=_TEXT, citations=_CITED),
    searchResult=_SEARCHED,
    toolAddition=_TOOL,
    toolRemoval=_TOOL,
)
FIELDS = shape("role", content=BLOCKS)
