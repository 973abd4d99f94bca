"""I renamed, rewound or deleted the wrong thing: how do I get it back, and what is gone for good?

Everything except a purge can be undone, now or next week: the operations log knows the state before.
"""

import tempfile

import takeback

with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/work.db"
    with takeback.open(path) as store:
        s = store.session("fix-retry", agent="coder")
        first = s.user("Fix the flaky test")
        s.assistant("It races on the pool.")
        s.rename("Flaky")
        s.tag("urgent", "tests")
        s.rewind(first)
        store.delete_session(s)
        print("listed:      ", list(store.list_sessions()))
        print("in the trash:", list(store.list_sessions(trash=True)))

    with takeback.open(path) as store:  # next week, another process
        print("\nOperations, newest first:")
        for operation in store.operations():
            print(f"  {operation.kind:8} {operation.summary}")

        print("\nUndone, the last one first:")
        s = store.list_sessions(trash=True)[0]
        for _ in range(3):
            done = s.undo()
            print(f"  {done.summary:45} {s.message_count} messages, tags {s.tags}, deleted {s.deleted}")
        print(f"  {s.redo().summary:45} {s.message_count} messages, tags {s.tags}")

        print("\nOr one from the middle:")
        renamed = next(operation for operation in store.operations() if operation.kind == "rename")
        print(f"  {store.undo(renamed).summary}")
        print(f"  {s.refresh()} {s.tags}")

        store.delete_session(s)
        print(f"\nPermanently: {store.purge_session(s)}")
        try:
            store.undo(renamed)
        except takeback.NotFound as error:
            print(f"  undo: {error}")
        print("  left:", list(store.list_sessions()), list(store.list_sessions(trash=True)), list(store.operations()))
