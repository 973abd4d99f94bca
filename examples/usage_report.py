"""The invoice is high: which agent and which session spent the money, and how much of it was wasted?

Usage is stored with the messages. A rewind removes messages from the path but returns no money: ``spent=True`` counts
every branch.
"""

import tempfile

import takeback
from takeback import Usage

PRICES = {"small-model": (0.25e-6, 2e-6), "large-model": (5e-6, 25e-6)}  # dollars per token, in and out


def answer(s: takeback.Session, text: str, model: str, given: int, made: int) -> None:
    """Store an answer with its cost, from your own price list."""
    price_in, price_out = PRICES[model]
    usage = Usage(input_tokens=given, output_tokens=made, cost=given * price_in + made * price_out)
    s.assistant(text, model=model, usage=usage, duration=made / 80)


def work(store: takeback.Store) -> None:
    fix = store.session("fix-retry", agent="coder")
    fix.user("Fix the flaky test")
    answer(fix, "It races on the pool.", "large-model", 21_000, 900)
    before = fix.user("Refactor the pool")
    answer(fix, "I rewrote 14 files.", "large-model", 88_000, 12_400)
    fix.rewind(before)
    answer(fix, "I added a lock.", "large-model", 24_000, 700)
    docs = store.session("docs", agent="coder")
    docs.user("Write the guide")
    answer(docs, "Here it is.", "small-model", 9_000, 2_100)
    for number in range(3):
        ticket = store.session(f"ticket-{number}", agent="support")
        ticket.user("Where is my parcel?")
        answer(ticket, "On its way.", "small-model", 3_000 + number, 60)


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/work.db") as store:
    work(store)
    print(f"{'':21} {'tokens in':>10} {'out':>8} {'cost':>8}  {'wasted':>11}  time")
    total = Usage()
    for agent in store.list_agents():
        of_agent = Usage()
        for session in agent.sessions():
            path, spent = session.stats(), session.stats(spent=True)
            of_agent += spent.usage
            used, away = spent.usage, spent.usage.cost - path.usage.cost
            row = (
                f"{used.input_tokens:10,} {used.output_tokens:8,} {used.cost:8.3f}  {away:11.3f}  {spent.duration:.0f}s"
            )
            print(f"  {session.name:19} {row}")
        print(f"{agent.id:21} {of_agent.input_tokens:10,} {of_agent.output_tokens:8,} {of_agent.cost:8.3f}")
        total += of_agent
    print(f"{'all':21} {total.input_tokens:10,} {total.output_tokens:8,} {total.cost:8.3f}")
    print("fix-retry as it stands:", store.get_session("fix-retry").stats())
