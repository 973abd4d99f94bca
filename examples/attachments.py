"""People send my bot pictures and tables, it sends files back, and I want them with the messages, not in a folder.

Content is stored once however often it is sent, streamed in and out, and checked when it is read.
"""

import hashlib
import io
import tempfile
from pathlib import Path

import takeback

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4

with tempfile.TemporaryDirectory() as folder:
    table = Path(folder, "sales.csv")
    with table.open("w") as lines:
        lines.writelines(f"2025-01-{day:02},{sale}\n" for day in range(1, 32) for sale in range(2000))

    with takeback.open(f"{folder}/chats.db") as store:
        s = store.session("chat", agent="analyst")
        s.user("What happened in January?", attachments=[table])  # a path: read in pieces
        chart = {"data": PICTURE, "name": "chart.png"}  # bytes with a name
        s.assistant("Sales were flat, see the chart.", attachments=[chart])
        s.user("Compare it with this one", attachments=["https://example.com/last-year.png"])  # kept, never fetched
        s.user("And the table again, in case you lost it", attachments=[table])
        report = io.BytesIO(b"# January\nflat\n")  # any open binary file
        s.assistant("Here is a report.", attachments=[{"file": report, "name": "report.md"}])
    table.unlink()

    with takeback.open(f"{folder}/chats.db") as store:  # another day; the file is gone from disk
        s = store.get_session("chat")
        for message in s.messages():
            print(f"{message.role:9} {message.text}")
            for attachment in message.attachments:
                print(f"          {attachment} {attachment.mime_type}")

        sent, chart = (message.attachments[0] for message in s.messages()[:2])
        digest, lines = hashlib.sha256(), 0
        with sent.open() as stream:  # streams a large file through memory in pieces
            for line in stream:
                digest.update(line)
                lines += 1
        print(f"{lines:,} lines read back, same content: {digest.hexdigest() == sent.hash}")
        print(f"picture back: {chart.read() == PICTURE}")
        print(f"5 attachments, {store.stats().blobs} contents stored")
        s.user("To my colleague", attachments=[chart])  # pass on another message's file: nothing is copied
        print(f"passed on, still {store.stats().blobs}")
