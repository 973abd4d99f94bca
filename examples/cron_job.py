"""My job runs every ten minutes and must report each new issue once, even if a run dies or two runs overlap.

The job has one permanent session, which remembers the last issue it has seen. Entering it takes its lease, so a second
run at the same time learns who is running. Each report has a key, so the run after a crash does not report twice.
"""

import tempfile
from collections.abc import Callable

import takeback

issues = ["1 flaky test", "2 slow start"]  # the tracker


def job(path: str, at: str, between: Callable[[], None] = lambda: None) -> None:
    with takeback.open(path) as store:
        try:
            with store.cron_session("watcher", "new-issues") as s:
                seen = s.state.get("seen", 0)
                new = issues[seen:]
                for issue in new:
                    s.assistant(f"New issue: {issue}", idempotency_key=f"issue {issue.split()[0]}")
                between()
                s.state.set("seen", seen + len(new))
                print(f"{at}  {len(new)} new after issue {seen}{f', after {s.error}' if s.error else ''}")
        except takeback.Busy as error:
            print(f"{at}  another run is in progress: {error.holder}")


def dies() -> None:
    raise ConnectionError("the machine went down")


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/jobs.db"
    job(path, "10:00")
    job(path, "10:10")
    issues.append("3 typo")
    try:
        job(path, "10:20", between=dies)  # has reported, but not saved how far it got
    except ConnectionError as error:
        print(f"10:20  {error}")
    issues.append("4 crash")
    job(path, "10:30", between=lambda: job(path, "10:30, once more"))  # cron started it twice

    with takeback.open(path) as store:
        s = store.cron_session("watcher", "new-issues")
        print(f"{s.key}: {s.state.items()}")
        print(*(f"  {message.text}" for message in s.messages()), sep="\n")
