"""My agent works for days in one session: every request must fit the model's window and still hit the cache.

The history grows without limit; each request stays within its budget, starts the same way for many turns, and keeps
what must not be forgotten. Tomorrow's agent starts from a summary.
"""

import tempfile

import takeback

WINDOW = 4_000


def shared(one: list, other: list) -> int:
    """Count the leading messages that two requests share, which the provider has in its cache."""
    return next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/work.db") as store:
    session = store.session("long work", agent="coder", title="Port the parser")
    session.user("Never touch the generated files.", metadata={"pinned": True})
    session.assistant("Understood.")

    before: list = []
    cached = sent = steps = largest = 0
    for number in range(120):
        session.user(f"Request {number}: " + "look at the next function and port it. " * 4)
        with session.tool("edit", {"file": f"part{number}.py"}) as edit:
            edit.result("edited, 14 lines changed\n" * 6)
        context = session.context("anthropic", max_tokens=WINDOW)
        kept = shared(before, context.messages)
        cached, sent, steps = cached + kept, sent + len(context.messages), steps + (kept < len(before))
        largest = max(largest, context.tokens)
        before = context.messages
        session.assistant(f"Function {number} is ported. " + "The tests pass. " * 4)

    print(f"{session.message_count} messages in the log; the largest request had {largest:,} tokens of {WINDOW:,}")
    print(f"{cached / sent:.0%} of what was sent was in the cache; the prefix changed {steps} times")
    print("pinned:", context.messages[0]["content"][1]["text"])
    print("left out:", *context.omitted)
    print()
    session.set_tasks(["port the functions", "delete the old parser"])
    session.update_task(0, "completed")
    print(session.summary(max_tokens=200))
