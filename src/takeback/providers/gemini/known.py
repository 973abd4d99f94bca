"""The parts of Gemini's contents and their fields, in either case."""

from __future__ import annotations

from ..known import Shape, shape
from .form import snake


def _either(names: str, **inside: Shape) -> dict[str, Shape]:
    """Return the shape of an object whose fields are written in camelCase or in snake_case."""
    camel = shape(names, **inside)
    return {**camel, **{snake(name): each for name, each in camel.items()}}


_BLOB = _either("data mimeType displayName")
_FILE = _either("fileUri mimeType displayName")
DATA: dict[str, Shape] = _either(
    "text",
    inlineData=_BLOB,
    fileData=_FILE,
    functionCall=_either("id name args"),
    functionResponse=_either(
        "id name response willContinue scheduling",
        parts=_either("mediaProcessing", inlineData=_BLOB, fileData=_FILE),
    ),
    executableCode=_either("id code language"),
    codeExecutionResult=_either("id outcome output"),
    toolCall=_either("id toolType args"),
    toolResponse=_either("id toolType response"),
)
"""What a part may be; the other fields stand beside one of these."""

PART: dict[str, Shape] = {
    **DATA,
    **_either(
        "thought thoughtSignature partMetadata mediaProcessing speechMetadata",
        videoMetadata=_either("startOffset endOffset fps"),
        mediaResolution=_either("level numTokens"),
    ),
}

CONTENT: dict[str, Shape] = {"role": None, "parts": PART, **_either("responseId modelVersion usageMetadata")}
"""What a content may have; what tells of the answer as a whole is not sent back."""
