"""LangGraph on a PostgreSQL server: the same graph as beside SQLite, its checkpoints in tables of the server."""

from __future__ import annotations

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from .langgraph import LangGraph


class LangGraphPostgres(LangGraph):
    """PostgresSaver of langgraph on a connection made as its own ``from_conn_string`` makes it."""

    name = "LangGraph PostgresSaver"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        self.server = psycopg.connect(self.url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
        saver = PostgresSaver(self.server)
        saver.setup()
        self.compile(saver)

    def close(self) -> None:
        self.server.close()
