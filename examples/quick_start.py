"""Ten lines: keep a conversation, branch it, take it back."""

import tempfile
from pathlib import Path

import holdfast
from holdfast import Usage

path = Path(tempfile.mkdtemp(), "work.db")

with holdfast.open(path) as store:
    session = store.create_session("fix-retry", agent="coder")
    session.user("Fix the flaky test")
    session.assistant("It races on the pool.", model="some-model", usage=Usage(input_tokens=1200, output_tokens=40))
    before = session.user("Use a lock")
    session.assistant("Done: pool.py has a lock now.")
    session.rewind(before)  # the answer leaves the path and stays on its branch
    session.assistant("Done: pool.py uses a queue.")
    print(session, *session.messages(), sep="\n  ")
    session.undo()  # back to the lock
    print(session.messages(limit=1)[0].text, session.stats(), store.verify(), sep="\n  ")
