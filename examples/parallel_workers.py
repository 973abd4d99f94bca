"""Four processes work for one agent and write to one store at once: nothing may be lost, duplicated or reordered.

Each worker has its own session and reports to a shared one. Processes are started with ``spawn``: a store handle
does not survive ``os.fork()``.
"""

import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor

import takeback

WORKERS, REPORTS = 4, 25


def work(path: str, number: int) -> int:
    with takeback.open(path) as store:
        own = store.session(f"worker-{number}", agent="worker")
        common = store.session("reports", agent="boss", hold=False)  # several processes append to it
        agent = store.get_agent("boss")
        for item in range(REPORTS):
            own.assistant(f"looked at item {item}")
            common.user(f"worker {number}: item {item} done")
            while True:  # a shared counter: compare and set, and retry if another worker was faster
                version, done = agent.state.version(), agent.state.get("done", 0)
                try:
                    agent.state.set("done", done + 1, expected_version=version)
                    break
                except takeback.Conflict:
                    continue
    return number


def main(path: str) -> None:
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(work, [path] * WORKERS, range(WORKERS)))
    with takeback.open(path) as store:
        reports = [message.text for message in store.get_session("reports").iter_messages()]
        print(f"{len(reports)} reports, {len(set(reports))} distinct")
        for number in range(WORKERS):
            mine = [text for text in reports if text.startswith(f"worker {number}:")]
            in_order = mine == [f"worker {number}: item {item} done" for item in range(REPORTS)]
            print(f"  worker {number}: {len(mine)}, {'in order' if in_order else 'OUT OF ORDER'}")
        print("shared counter:", store.get_agent("boss").state.get("done"))
        print("verify:", store.verify())
        print("store:", store.stats())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"{folder}/work.db")
