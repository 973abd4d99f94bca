"""My agent works through a list, goes off track after an hour, and I want the list as it was before that.

Tasks, plan, notes and the files it touched are part of the session: a rewind takes them all back, and an undo
restores them all.
"""

import tempfile

import takeback


def show(s: takeback.Session, when: str) -> None:
    print(f"{when}: {s.completed_count} of {s.task_count} done; plan: {s.get_plan()}")
    for task in s.tasks():
        notes = [note.text for note in s.notes() if note.task == task.id]
        print(f"  {task.description:20} {task.status:12} {'; '.join(notes)}".rstrip())
    print("  files:", ", ".join(f"{file.path} ({file.action})" for file in s.files()))


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/work.db") as store:
    s = store.session("login", agent="coder")
    s.user("Add a login with a device code")
    s.set_plan("Endpoint first, then the page")
    s.set_tasks(["Write the endpoint", "Write the page", "Write the tests"])

    s.update_task(0, "in_progress")
    with s.tool("write_file", {"path": "api/login.py"}) as running:
        s.record_file("api/login.py", "created", call=running.call)
        running.result("written")
    s.note("codes live ten minutes", task=0)
    s.update_task(0, "completed")
    good = s.checkpoint("endpoint works", description="before the page")
    show(s, "at the checkpoint")

    s.user("Now the page")
    s.set_plan("Rewrite everything in another framework")
    s.add_task("Port the old pages", "in_progress")
    s.update_task(1, "failed")
    s.note("the old pages do not build", task=1)
    s.record_file("pages/index.html", "deleted")
    show(s, "an hour later")

    rewind = s.preview_rewind("endpoint works")
    print(rewind)
    operation = rewind.apply()
    show(s, "after the rewind")

    s.undo(operation)
    print(f"after the undo: plan: {s.get_plan()}, {s.task_count} tasks")
    s.redo()
    print(f"after the redo: plan: {s.get_plan()}, {s.task_count} tasks")
