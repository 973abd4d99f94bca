"""Two stores that agents use today, each driven the way its own framework drives it.

OpenAI Agents runs every call of its SQLiteSession in a worker thread of the event loop; LangGraph saves the
whole state of a graph as a checkpoint. Neither is tuned and neither is slowed down: both sync each commit,
because that is the default of the SQLite that Python links.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"

from agents import SQLiteSession
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from .messages import Message
from .stores import Arm


class OpenAIAgents(Arm):
    """SQLiteSession of openai-agents; times are taken inside its event loop."""

    name = "OpenAI Agents SQLiteSession"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._open: dict[str, SQLiteSession] = {}

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        for session in self._open.values():
            session.close()
        self._open.clear()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def use(self, session: str) -> None:
        if session not in self._open:
            self._open[session] = SQLiteSession(session, self.path)
        self._session = self._open[session]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        async def go() -> list[float]:
            times = []
            for message in prepared:
                started = perf_counter()
                await self._session.add_items([message])
                times.append(perf_counter() - started)
            return times

        return self._loop.run_until_complete(go())

    def fill(self, prepared: Sequence[Any]) -> None:
        self._loop.run_until_complete(self._session.add_items(list(prepared)))

    def read(self, last: int | None) -> tuple[float, int]:
        async def go() -> tuple[float, int]:
            started = perf_counter()
            found = await self._session.get_items(limit=last)
            return perf_counter() - started, len(found)

        return self._loop.run_until_complete(go())


class LangGraph(Arm):
    """SqliteSaver of langgraph under a graph with the usual message state."""

    name = "LangGraph SqliteSaver"
    slow = True

    def open(self) -> None:
        self._connection = sqlite3.connect(self.path, check_same_thread=False)
        graph = StateGraph(MessagesState)
        graph.add_node("agent", lambda state: {"messages": []})
        graph.add_edge(START, "agent")
        graph.add_edge("agent", END)
        self._graph = graph.compile(checkpointer=SqliteSaver(self._connection))

    def close(self) -> None:
        self._connection.close()

    def use(self, session: str) -> None:
        self._config: Any = {"configurable": {"thread_id": session}}

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [_as_langchain(message) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        times = []
        for message in prepared:
            started = perf_counter()
            self._graph.update_state(self._config, {"messages": [message]}, as_node="agent")
            times.append(perf_counter() - started)
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        self._graph.update_state(self._config, {"messages": list(prepared)}, as_node="agent")

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found = self._graph.get_state(self._config).values["messages"]
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
