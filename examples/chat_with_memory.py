"""My chat bot serves many people: each comes back to their own conversation, and nobody sees anyone else's.

A scope per person keeps everything apart; what the bot knows about a person is the agent's state in that scope.
"""

import re
import tempfile

import takeback


def model(messages: list[takeback.Message], known: dict) -> str:
    """Stand in for a model that knows only what it is given."""
    asked = messages[-1].text
    if "my name" in asked and "name" in known:
        return f"You are {known['name']}."
    if "first" in asked:
        return f"You started with: {messages[0].text!r}"
    return f"Nice to meet you, {known['name']}." if "name" in known else "Who are you?"


def answer(store: takeback.Store, person: str, text: str) -> str:
    """Handle one request to a web server, in any process."""
    mine = store.scoped(person)
    chat = mine.session("chat", agent="bot")
    chat.user(text)
    memory = mine.get_agent("bot").state
    if found := re.search(r"I am (\w+)", text):
        memory.set("name", found[1])
    said = model(chat.messages(limit=20, tools=False), memory.items())
    chat.assistant(said)
    return said


with tempfile.TemporaryDirectory() as folder:
    for person, text in [
        ("u-1", "Hello, I am Anna"),
        ("u-2", "Hi"),
        ("u-1", "What was the first thing I said?"),
        ("u-2", "What is my name?"),
        ("u-1", "What is my name?"),
    ]:
        with takeback.open(f"{folder}/chats.db") as store:  # as if every request reached a new process
            print(f"{person}  {text}\n     -> {answer(store, person, text)}")

    with takeback.open(f"{folder}/chats.db") as store:
        for person in ("u-1", "u-2"):
            print(person, *store.scoped(person).list_sessions(), store.scoped(person).get_agent("bot").state.items())
        print("without a scope:", list(store.list_sessions()))
