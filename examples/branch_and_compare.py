"""Two approaches look good, and I want to try both from the same point, then continue with the better one.

A fork copies nothing. Each approach is a branch with its own state; the other one stays for later.
"""

import tempfile

import takeback
from takeback import Usage

WAYS = {
    "lock": [("A lock around take().", 900), ("19 of 20 runs pass: it can still deadlock.", 1400)],
    "queue": [("A queue in place of the list.", 1100), ("20 of 20 runs pass.", 1500)],
}


def attempt(s: takeback.Session, way: str) -> int:
    """Play an agent that tries one approach, and return how many runs passed."""
    for text, tokens in WAYS[way]:
        s.assistant(text, usage=Usage(input_tokens=tokens, output_tokens=40, cost=tokens * 3e-6))
    passed = int(text.split()[0])
    s.state.set("passed", passed)
    return passed


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/work.db") as store:
    s = store.session("fix-retry", agent="coder")
    s.user("Fix the flaky test")
    s.assistant("It races on the pool.")
    point = s.user("Fix the pool then")

    passed = {}
    for way in WAYS:
        s.switch(s.fork(point, name=way))
        passed[way] = attempt(s, way)
        print(f"{way:5}  {passed[way]} of 20 pass   {s.stats()}")

    best = max(passed, key=passed.__getitem__)
    s.switch(best)
    s.user("Good, commit it")
    print(f"\nContinuing with {best}:")
    for message in s.messages():
        print(f"  {message.role:9} {message.text}")
    print(s.branches())
    print("path: ", s.stats())
    print("spent:", s.stats(spent=True))

    other = s.fork(point, name="somebody else's try", as_session=True)  # a fork can also be a separate session
    other.assistant("Retry three times.")
    print([message.text for message in other.messages()][-2:], "in", other.name)
