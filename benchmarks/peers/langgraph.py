"""LangGraph: the whole state of a graph is saved as a checkpoint with every step."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from time import perf_counter
from typing import Any

os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"

from . import is_installed

if is_installed("langgraph"):
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph

from ..messages import Message
from ..stores import Arm


class LangGraph(Arm):
    """SqliteSaver of langgraph under a graph with the usual message state."""

    name = "LangGraph SqliteSaver"
    needs = "langgraph"
    slow = True

    def open(self) -> None:
        self.connection = sqlite3.connect(self.path, check_same_thread=False)
        self.compile(SqliteSaver(self.connection))

    def compile(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Make the graph whose state is saved."""
        self.saver = saver
        graph = StateGraph(MessagesState)
        graph.add_node("agent", lambda state: {"messages": []})
        graph.add_edge(START, "agent")
        graph.add_edge("agent", END)
        self.graph = graph.compile(checkpointer=self.saver)

    def close(self) -> None:
        self.connection.close()

    def use(self, session: str) -> None:
        self.config: Any = {"configurable": {"thread_id": session}}

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [_as_langchain(message) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        times = []
        for message in prepared:
            started = perf_counter()
            self.fill([message])
            times.append(perf_counter() - started)
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        self.graph.update_state(self.config, {"messages": list(prepared)}, as_node="agent")

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found = self.graph.get_state(self.config).values["messages"]
        if last is not None:
            found = found[-last:]
        return perf_counter() - started, len(found)


def _as_langchain(message: Message) -> AnyMessage:
    parts = message["content"]
    if message["role"] == "user":
        return HumanMessage(content=parts)
    if message["role"] == "tool":
        return ToolMessage(content=parts[0]["content"], tool_call_id=parts[0]["tool_use_id"])
    calls = [{"id": p["id"], "name": p["name"], "args": p["input"]} for p in parts if p["type"] == "tool_use"]
    usage = message["usage"]
    tokens = {**usage, "total_tokens": sum(usage.values())}
    return AIMessage(content=parts, id=message["id"], tool_calls=calls, usage_metadata=tokens)
