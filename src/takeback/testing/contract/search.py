"""Search: everything is found, in every script, and nothing that was taken back or belongs to somebody else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from takeback import Custom, Invalid, NotFound, Session, Store, Task

from .base import Contract

TEXTS = {
    "english": "The connection pool closes twice, worldwide, after pool_close() in src/pool.py as of v1.2.3",
    "german": "Die Straße über die Brücke ist gesperrt",
    "french": "Étude naïve d’un cœur déjà fatigué",
    "russian": "Привет, мир! Ёлка стоит в углу",
    "greek": "Ο Οδυσσέας γύρισε στην Ιθάκη",
    "chinese": "数据库连接池在重试后被关闭",
    "japanese": "東京都でテストを実行しました。カタカナ",
    "guide": "ガイドブック",
    "half-width guide": "ｶﾞｲﾄﾞﾌﾞｯｸ",
    "korean": "한국어 문서를 데이터베이스에 저장했습니다",
    "thai": "สวัสดีครับ ฐานข้อมูลถูกล็อก",
    "arabic": "قاعدة البيانات مُغلقة الآن",
    "hebrew": "שָׁלוֹם עולם",
    "hindi": "डेटाबेस बंद है",
    "emoji": "shipped 🚀✅ to production",
    "heart": "I ❤ it",
    "heart in colour": "I ❤\ufe0f it",
    "mixed": "用pytest跑test_pool.py的时候失败了",
}
FINDS = [
    *(("english", each) for each in ("pool", "POOL closes", "pool_close", "src/pool.py", "v1.2.3", "world", "ldwid")),
    *(("english", each) for each in ('"connection pool"', "connect*", "twice worldwide connection", "pool.py", "v1.2")),
    *(("german", each) for each in ("strasse", "STRASSE", "brucke", "BRÜCKE", "rück")),
    *(("french", each) for each in ("etude", "ÉTUDE", "coeur", "cœur", "deja")),
    *(("russian", each) for each in ("привет", "МИР", "елка", "риве")),
    *(("greek", each) for each in ("οδυσσεας", "ΙΘΆΚΗ")),
    *(("chinese", each) for each in ("数据库", "连接", "池", "重试", "闭", '"连接池"')),
    *(("japanese", each) for each in ("東京", "京都", "京", "テスト", "ｶﾀｶﾅ", "カ")),
    *((name, each) for name in ("guide", "half-width guide") for each in ("ガイド", "ｶﾞｲﾄﾞ", "カ\u3099イ", "ﾄﾞ", "ブ")),
    *(("korean", each) for each in ("문서", "데이터베이스", "국", "한국어")),
    *(("thai", each) for each in ("สวัสดี", "ข้อมูล", "ล")),
    *(("arabic", each) for each in ("البيانات", "بيان", "مغلقة", "ق")),
    *(("hebrew", each) for each in ("שלום", "עולם", "ו")),
    *(("hindi", each) for each in ("डेटा", "बंद")),
    *((name, each) for name in ("heart", "heart in colour") for each in ("❤", "❤\ufe0f", "❤\ufe0f it")),
    *(("emoji", each) for each in ("🚀", "✅", "🚀✅")),
    *(("mixed", each) for each in ("pytest", "用pytest", "跑test_pool", "失败", "test_pool.py的")),
]
HOSTILE = [
    *('"', "'", '"""', "''", "(", ")", "()", "*", "-", "--", "+", "^", ":", "a:b", "NEAR(a b)", "a NEAR b", "{a b}:c"),
    *(
        "a AND",
        "AND",
        "OR",
        "NOT",
        "a OR",
        "OR a",
        "NOT a",
        "a NOT",
        "a AND OR NOT b",
        "-a -b",
        "-",
        "- a",
        "a -",
        "-*",
    ),
    *("%", "_", "a%b", "\\", "\\'", "a\\", ";", "; DROP TABLE found; --", "' OR 1=1 --", "a' OR 'a'='a", "/*", "--a"),
    *(
        "\0",
        "a\0b",
        "\ud800",
        "\udfff a",
        "\ue000user",
        "\ue0050",
        "\ufffe",
        "\x1b[31m",
        "\u202e",
        "\u200b",
        "́",
        "a" * 500,
    ),
    *("**", "a**", "*a", "a*b", "“a”", "„a“", '"a', 'a"', '"a"b"', '""', '" "', "a" + " b" * 300, "x OR " * 40 + "y"),
    *("$1", "?", ":a", "@a", "#a", "a|b", "a&b", "!a", "a<->b", "a:*", "'a':*", "<script>", "{{a}}", "${a}", "\n\t\r"),
    *(
        f"{sign}{word}"
        for sign in "\"'()*-+^:.,;!?&|<>~`$%@#=/\\[]{}"
        for word in ("", "a", "pool close", '"', "OR", "-")
    ),
]


def _found(store: Store, query: str, **more: Any) -> list[str]:
    """Return the texts that a search finds, by the ids of their messages, sorted."""
    return sorted(f"{hit.session_id}:{hit.seq}" for hit in store.search(query, **more))


def _pages(store: Store, query: str, meanwhile: Callable[[], None], **more: Any) -> list[tuple[str, int]]:
    """Return all hits of a search, by pages of five; behind the second page something happens."""
    found, cursor, count = list[tuple[str, int]](), None, 0
    while count == 0 or cursor is not None:
        page = store.search(query, limit=5, cursor=cursor, **more)
        found += [(hit.session_id, hit.seq) for hit in page]
        cursor, count = page.cursor, count + 1
        if count == 2:
            meanwhile()
    return found


def _place(session: Session, message: Any) -> str:
    return f"{session.id}:{message.seq}"


class Searches(Contract):
    """``store.search``."""

    @pytest.mark.feature("E10")
    def test_every_script_is_found_by_words_parts_and_characters(self, store: Store) -> None:
        places = dict[str, str]()
        for name, text in TEXTS.items():
            session = store.create_session(name, title=f"session {len(places)}")
            places[name] = _place(session, session.assistant(text))
        for name, query in FINDS:
            assert places[name] in _found(store, query), (name, query)
        for query in ("nothing", "poo1", "东京", "closes -pool", '"pool connection"', "دن"):
            assert _found(store, query) == [], query

    @pytest.mark.feature("E10")
    def test_everything_that_a_session_says_is_found(self, session: Session, store: Store) -> None:
        session.user("alpha", attachments=[{"data": b"x", "name": "bravo-report.pdf", "type": "file"}])
        call = {
            "type": "tool_use",
            "id": "c1",
            "name": "shell_charlie",
            "input": {"command": "delta --fast", "n": 4711},
        }
        session.append({"role": "assistant", "content": [{"type": "text", "text": "echo"}, call]})
        session.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "foxtrot"}]}
        )
        with session.tool("golf", {"hotel": "india"}) as run:
            run.result("juliett")
        session.set_plan("kilo")
        session.set_tasks(["lima", Task("mike", "completed")])
        session.note("november")
        session.record_file("src/oscar.py", "created")
        session.set_walkthrough("papa")
        session.append(Custom("graph", {"x": 1}, text="quebec"))
        session.compact(1, "romeo")
        session.rename("sierra")
        kinds = {
            "alpha": "message",
            "bravo": "message",
            "charlie": "message",
            "delta": "message",
            "4711": "message",
            "echo": "message",
            "foxtrot": "result",
            "golf": "call",
            "india": "call",
            "juliett": "result",
            "kilo": "plan",
            "lima": "task",
            "mike": "task",
            "november": "note",
            "oscar": "file",
            "papa": "walkthrough",
            "quebec": "custom",
            "romeo": "summary",
            "sierra": "title",
        }
        for word, kind in kinds.items():
            found = store.search(word)
            assert kind in [hit.kind for hit in found], word
            assert {hit.session_id for hit in found} == {session.id}
            assert f"«{word}»" in found[0].snippet.lower() or "«" in found[0].snippet
        assert not store.search("hotel"), "names of arguments are not text"

    @pytest.mark.feature("E10", "D3")
    def test_a_hit_opens_at_its_message(self, store: Store, session: Session) -> None:
        session.user("first question")
        session.assistant("an answer")
        wanted = session.user("second question about locks")
        child = session.spawn("look", label="helper").session
        assert child is not None
        child.assistant("the helper saw locks")
        hits = store.search("locks")
        assert {hit.session_id for hit in hits} == {session.id, child.id}
        (hit,) = [each for each in hits if each.session_id == session.id]
        assert (hit.seq, hit.turn, hit.role, hit.kind) == (wanted.seq, 2, "user", "message")
        assert hit.snippet == "second question about «locks»"
        assert (hit.title, hit.created_at) == (session.title, wanted.created_at)
        found = store.resolve(hit.ref)
        assert (found.session.id, found.seq) == (session.id, wanted.seq)
        assert type(hit).from_dict(hit.to_dict()) == hit
        assert type(hits).from_dict(hits.to_dict()) == hits

    @pytest.mark.feature("E10")
    def test_what_was_left_is_found_only_on_request(self, store: Store, session: Session) -> None:
        session.user("keep this")
        session.user("forget the zebra")
        assert len(store.search("zebra")) == 1
        session.rewind(1)
        assert not store.search("zebra")
        (hit,) = store.search("zebra", branches=True)
        assert store.resolve(hit.ref).seq == 2
        session.user("another zebra, on a new branch")
        assert [each.snippet[:7] for each in store.search("zebra")] == ["another"]
        assert len(store.search("zebra", branches=True)) == 2
        session.undo()
        assert [each.snippet for each in store.search("zebra")] == ["forget the «zebra»"]

    @pytest.mark.feature("E10")
    def test_a_fork_has_what_it_reads(self, store: Store, session: Session) -> None:
        session.user("the walrus")
        fork = session.fork(as_session=True, name="other")
        fork.user("a walrus of its own")

        def seen(**more: Any) -> list[tuple[str, int]]:
            found = store.search("walrus", kinds=["message"], **more)
            return sorted((hit.session_id, hit.seq) for hit in found)

        assert seen(session=session) == [(session.id, 1)]
        assert seen(session=fork) == sorted([(fork.id, 1), (fork.id, 2)])
        assert seen() == sorted([(session.id, 1), (fork.id, 2)]), "what both read is one hit"
        store.purge_session(session)
        assert seen() == sorted([(fork.id, 1), (fork.id, 2)])
        store.purge_session(fork)
        assert seen(branches=True) == []
        assert not store.check_search()

    @pytest.mark.feature("E10", "E7")
    def test_the_trash_hides_and_a_purge_forgets(self, store: Store, session: Session) -> None:
        session.user("an ocelot")
        session.note("ocelot, ocelot")
        assert len(store.search("ocelot", kinds=["message", "note"])) == 2
        store.delete_session(session)
        assert not store.search("ocelot", branches=True)
        store.restore_session(session)
        assert store.search("ocelot")
        store.purge_session(session)
        assert not store.search("ocelot", branches=True)
        assert not store.check_search()

    @pytest.mark.feature("E10", "F12")
    def test_a_redaction_forgets_texts_and_titles(self, store: Store, session: Session) -> None:
        session.user("the narwhal is secret", id="mine")
        session.user("harmless")
        fork = session.fork(as_session=True, name="copy")
        assert {hit.session_id for hit in store.search("narwhal", kinds=["title"])} == {session.id, fork.id}
        session.redact("mine", dry_run=False)
        assert not store.search("narwhal", branches=True)
        assert store.search("harmless")

    @pytest.mark.feature("E10")
    def test_a_new_title_replaces_the_old_one(self, store: Store, session: Session) -> None:
        session.rename("Giraffe enclosure")
        assert [hit.kind for hit in store.search("giraffe")] == ["title"]
        session.rename("Elephant enclosure")
        assert not store.search("giraffe")
        assert [hit.snippet[:10] for hit in store.search("elephant")] == ["«Elephant»"]
        session.undo()
        assert store.search("giraffe")

    @pytest.mark.feature("E10")
    def test_filters_narrow(self, store: Store, tmp_path: Path) -> None:
        one = store.create_session("one", agent="coder", workspace=tmp_path)
        two = store.create_session("two", agent="triage")
        asked = one.user("the badger asks")
        one.append(
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "badger seen"},
                    {"type": "tool_use", "id": "c", "name": "grep", "input": {"pattern": "badger", "path": "src/a.py"}},
                ],
            }
        )
        one.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "badger:12"}]})
        one.set_plan("find the badger")
        two.user("badger elsewhere, in lib/b.py")

        def seqs(**more: Any) -> list[tuple[str, int]]:
            found = store.search("badger", **more)
            return sorted(("one" if hit.session_id == one.id else "two", hit.seq) for hit in found)

        assert seqs() == [("one", 0), ("one", 1), ("one", 2), ("one", 3), ("one", 4), ("two", 0), ("two", 1)]
        assert seqs(roles=["user"]) == [("one", 1), ("two", 1)]
        assert seqs(roles="assistant", kinds=["plan"]) == [("one", 2), ("one", 4)]
        assert seqs(kinds=["result"]) == [("one", 3)]
        assert seqs(kinds="title") == [("one", 0), ("two", 0)]
        assert seqs(tool="grep") == [("one", 2), ("one", 3)]
        assert seqs(path="src/a.py") == [("one", 2)]
        assert seqs(path="b.py") == [("two", 0), ("two", 1)]
        assert seqs(agent="triage") == [("two", 0), ("two", 1)]
        assert seqs(workspace=tmp_path, kinds=["message"]) == [("one", 1), ("one", 2)]
        assert seqs(session=two, kinds=["message"]) == [("two", 1)]
        assert seqs(session="two", agent="coder") == []
        before, after = asked.created_at - timedelta(hours=1), asked.created_at + timedelta(days=2)
        assert seqs(since=after) == seqs(until=before) == []
        assert seqs(since=before, until=after) == seqs()
        with pytest.raises(NotFound):
            store.search("badger", session="nobody")

    @pytest.mark.feature("E10")
    def test_times_are_those_when_it_happened(self, store: Store, session: Session) -> None:
        for year in (2020, 2023, 2024):
            item = {"role": "user", "content": f"the heron of {year}", "created_at": datetime(year, 5, 1, tzinfo=UTC)}
            session.append(item)
        found = store.search("heron", kinds=["message"], since=datetime(2022, 1, 1, tzinfo=UTC))
        assert sorted(hit.created_at.year for hit in found) == [2023, 2024]
        found = store.search("heron", kinds=["message"], until=datetime(2022, 1, 1, tzinfo=UTC))
        assert [hit.created_at.year for hit in found] == [2020]

    @pytest.mark.feature("E10")
    def test_ranking_favours_many_words_titles_and_what_is_recent(self, store: Store) -> None:
        old = datetime(2021, 1, 1, tzinfo=UTC)
        session = store.create_session("ranks", title="Of otters")
        session.append({"role": "user", "content": "otter, long ago", "created_at": old})
        session.append({"role": "user", "content": "otter otter otter otter, long ago", "created_at": old})
        session.append({"role": "user", "content": "otter, today"})
        texts = [hit.snippet for hit in store.search("otter*", explain=True)]
        assert texts == [
            "Of «otter»s",
            "«otter», today",
            "«otter» «otter» «otter» «otter», long ago",
            "«otter», long ago",
        ]
        assert [hit.seq for hit in store.search("otter today zzz")] == [3, 2, 1], "most of the words first"
        (hit,) = store.search("today", explain=True)
        assert hit.why is not None
        assert round(sum(hit.why.values()), 2) == round(hit.score, 2)
        assert store.search("today")[0].why is None

    @pytest.mark.feature("E10")
    def test_rare_words_count_most_where_not_all_are_there(self, store: Store, session: Session) -> None:
        for number in range(40):
            session.user(f"what is the weather of day {number}")
        wanted = session.user("a circuit breaker opened")
        session.user("the giraffe is what the zoo is for")
        found = store.search("what is the circuit breaker timeout", kinds=["message"])
        assert [hit.seq for hit in found] == [wanted.seq], "words that are everywhere do not count"
        assert found[0].snippet == "a «circuit» «breaker» opened"
        assert found.notes == (
            "no entry has all of these words; these have some of them",
            'common words were not counted: "what", "is", "the"',
        )
        (hit,) = store.search("circuit giraffe", kinds=["message"], limit=1, explain=True)
        assert hit.why is not None
        assert hit.why["words"] > 10

    @pytest.mark.feature("E10")
    def test_without_words_filters_find_all_there_is(self, store: Store, session: Session) -> None:
        session.user("look at src/pool.py")
        with session.tool("Bash", {"command": "cat src/pool.py"}) as run:
            run.result("the narrow pool")
        session.note("a note")
        assert [hit.kind for hit in store.search("", kinds=["note", "call"])] == ["note", "call"]
        found = store.search("", path="src/pool.py")
        assert [hit.kind for hit in found if hit.kind != "title"] == ["call", "message"]
        assert all("«src/pool.py»" in hit.snippet for hit in found)
        assert [(hit.kind, hit.tool) for hit in store.search("pool", tool="bash")] == [
            ("call", "Bash"),
            ("result", "Bash"),
        ]
        assert not store.search("")
        assert not store.search("", branches=True)

    @pytest.mark.feature("E10")
    def test_any_filter_but_the_workspace_is_enough_without_words(self, store: Store, tmp_path: Path) -> None:
        one = store.create_session("one", agent="coder", workspace=tmp_path)
        two = store.create_session("two", agent="triage")
        asked, noted = one.user("a badger"), two.note("an otter")
        before, after = asked.created_at - timedelta(hours=1), noted.created_at + timedelta(hours=1)

        def kinds(**more: Any) -> list[str]:
            return sorted(hit.kind for hit in store.search("", **more))

        assert kinds(agent="coder") == kinds(session=one) == ["message", "title"]
        assert kinds(session="two") == kinds(agent="triage", since=before) == ["note", "title"]
        assert kinds(since=before) == kinds(until=after) == ["message", "note", "title", "title"]
        assert kinds(since=after) == kinds(until=before) == kinds(workspace=tmp_path) == []
        assert kinds(since=before, workspace=tmp_path) == ["message", "title"]
        assert [hit.kind for hit in store.search("-otter", since=before, kinds=["message", "note"])] == ["message"]

    @pytest.mark.feature("E10")
    def test_without_words_the_newest_come_first(
        self, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from takeback.search import find

        session.user("see src/pool.py and src/pool.py")
        with session.tool("edit", {"file": "src/pool.py"}) as run:
            run.result("src/pool.py written")
        session.note("src/pool.py is short")
        old = {"role": "user", "content": "src/pool.py of old", "created_at": datetime(2021, 1, 1, tzinfo=UTC)}
        session.append(old)
        expected = ["note", "result", "call", "message", "message"]
        for window in (find.WINDOW, 2):
            monkeypatch.setattr(find, "WINDOW", window)
            found = [hit for hit in store.search("", path="src/pool.py") if hit.kind != "title"]
            if window > 2:
                assert [hit.kind for hit in found] == expected
                assert found[-1].snippet == "«src/pool.py» of old"
            pages, cursor = list[str](), None
            while True:
                page = store.search("", session=session, kinds=["call", "result", "note"], limit=1, cursor=cursor)
                pages += [hit.kind for hit in page]
                if (cursor := page.cursor) is None:
                    break
            assert pages == ["note", "result", "call"]
        (hit,) = store.search("", kinds=["note"], explain=True)
        assert hit.why is not None
        assert hit.why["kind"] == hit.why["times"] == 0

    @pytest.mark.feature("E10")
    def test_why_there_is_nothing_to_look_for_is_said(self, store: Store, session: Session) -> None:
        session.user("a pool")
        reasons = {
            "": "the query is empty",
            " ": "the query is empty",
            "!!!": "the query has no letters or digits",
            "€": "the query has no letters or digits",
            "-foo": "the query only says what to leave out",
            "NOT foo": "the query only says what to leave out",
            "NOT": "AND and NOT are not words to look for; put them in double quotes",
        }
        for query, reason in reasons.items():
            found = store.search(query)
            assert (len(found), found.notes) == (0, (f"there is nothing to look for: {reason}",)), query
        assert not store.search("!!!", kinds=["message"]), "what cannot be looked for is not everything"

    @pytest.mark.feature("E10")
    def test_a_role_that_nobody_has_is_noted(self, store: Store, session: Session) -> None:
        session.user("a pool")
        found = store.search("pool", roles=["user", "usr"])
        assert (len(found), found.notes) == (1, ('no entry has the role "usr"',))
        assert store.search("pool", roles="assistant").notes == ()
        session.append({"role": "critic", "content": "a shallow pool"})
        assert [hit.role for hit in store.search("pool", roles="critic")] == ["critic"]
        assert store.search("pool", roles="critic").notes == ()

    @pytest.mark.feature("E10")
    def test_a_hit_shows_what_a_tool_was_told(self, store: Store, session: Session) -> None:
        with session.tool("kubectl", {"command": "get pods", "namespace": "prod"}) as run:
            run.result("no pods")
        call = {"type": "tool_use", "id": "c1", "name": "grep", "input": {"pattern": "leak", "path": "src"}}
        session.append({"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})

        def snippets(query: str, **more: Any) -> list[str]:
            return [hit.snippet for hit in store.search(query, **more)]

        assert snippets("", tool="kubectl") == ["no pods", "kubectl get pods prod"]
        assert snippets("kubectl") == ["«kubectl» get pods prod"]
        assert snippets("", tool="grep") == snippets("", kinds=["call"])[:1] == ["grep leak src"]
        assert snippets("", roles="assistant")[:1] == ["I look."]

    @pytest.mark.feature("E10")
    def test_a_hit_says_that_it_is_a_name_of_an_attachment(self, store: Store, session: Session) -> None:
        files = [{"data": b"x", "name": name, "type": "file"} for name in ("logs.txt", "budget-2024.pdf")]
        session.user("look at these", attachments=files)
        assert [hit.snippet for hit in store.search("budget")] == ["attached: logs.txt, «budget»-2024.pdf"]
        assert not store.search("attached")

    @pytest.mark.feature("E10")
    def test_a_pasted_flag_is_a_word_and_what_a_dash_left_out_is_said(self, store: Store, session: Session) -> None:
        wanted = session.user("git push --force-with-lease; rm -rf build")
        for query in ("push --force", "--force-with-lease", '"rm -rf"'):
            found = store.search(query)
            assert wanted.seq in [hit.seq for hit in found], query
            assert not found.notes
        left_out = (
            'entries with "rf" were left out because of the dash;'
            " to search for the text as it stands, put it in double quotes"
        )
        for query in ("push -rf", "rm -rf lease"):
            found = store.search(query)
            assert (len(found), found.notes) == (0, (left_out,))
        other = session.user("rm build, then build again")
        found = store.search("rm -rf build", kinds=["message"])
        assert ([hit.seq for hit in found], found.notes) == ([other.seq], (left_out,)), "hits do not hide it"

    @pytest.mark.feature("E10")
    def test_a_pasted_command_is_found_as_it_stands_if_nothing_else_is(self, store: Store, session: Session) -> None:
        commands = (
            "pytest -x tests/test_pool.py",
            "grep -rn CsvImporter",
            "terraform apply -auto-approve -var-file=envs/staging.tfvars",
        )
        for number, command in enumerate(commands):
            with session.tool("bash", {"command": command}) as run:
                run.result(f"done {number}")
        session.assistant("grep and CsvImport, pytest and terraform")
        for command in commands:
            found = store.search(command)
            assert [hit.kind for hit in found] == ["call"], command
            assert f"«{command}»" in found[0].snippet
            assert found[0].whole
            (note,) = found.notes
            assert note.endswith("these have the text as it stands")
        for number in range(3):
            session.user(f"run grep -rn CsvImporter {number}")
        more = dict[str, Any](kinds=["message"], limit=2)
        first = store.search(commands[1], **more)
        second = store.search(commands[1], **more, cursor=first.cursor)
        assert (len(first), len(second), second.cursor) == (2, 1, None)
        assert len(store.search(commands[1], group="session")) == 1

    @pytest.mark.feature("E10")
    def test_a_word_to_leave_out_is_a_whole_word(self, store: Store, session: Session) -> None:
        for text in ("pool and lock", "pool and locks", "pool and keys"):
            session.assistant(text)

        def seqs(query: str) -> list[int]:
            return sorted(hit.seq for hit in store.search(query))

        assert seqs("pool -lock") == seqs("pool NOT lock") == [2, 3]
        assert seqs("pool -lock*") == [3]
        assert seqs('pool -"and keys"') == [1, 2]
        assert seqs("keys -pool") == [], "not as it stands either"

    @pytest.mark.feature("E10")
    def test_what_looks_like_an_operator_and_is_none(self, store: Store, session: Session) -> None:
        session.assistant("the pool or the queue")
        session.assistant("the pool")
        assert [hit.seq for hit in store.search("pool or queue")] == [1]
        assert sorted(hit.seq for hit in store.search("pool OR queue")) == [1, 2]
        assert not store.search('"the poo*"'), "a beginning in a phrase is a word"

    @pytest.mark.feature("E10")
    def test_an_agent_is_named_by_itself_or_by_its_id(self, store: Store) -> None:
        coder = store.create_agent("coder")
        session = store.create_session("one", agent=coder)
        session.user("a wombat")
        store.create_session("two", agent="triage").user("another wombat")
        assert [hit.session_id for hit in store.search("wombat", agent=coder, kinds=["message"])] == [session.id]
        assert [each.id for each in store.list_sessions(agent=coder)] == [session.id]
        assert store.get_session("one", agent=coder).id == session.id
        for wrong in (session, 5):
            with pytest.raises(Invalid):
                store.search("wombat", agent=wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("E10", "E12")
    def test_what_an_earlier_search_was_asked_and_answered_is_no_hit(self, store: Store, session: Session) -> None:
        session.rename("animals")
        said = _place(session, session.assistant("the quokka sleeps"))
        for tool in ("search_history", "mcp__takeback__search_history", "takeback_conversation_search"):
            with session.tool(tool, {"query": "quokka"}) as run:
                run.result('{"hits": [{"snippet": "the quokka sleeps"}]}')
            asked = {"type": "tool_use", "id": tool, "name": tool, "input": {"query": "quokka"}}
            session.append({"role": "assistant", "content": [asked]})
            answer = {"type": "tool_result", "tool_use_id": tool, "content": "the quokka sleeps"}
            session.append({"role": "user", "content": [answer, {"type": "text", "text": "and the numbat"}]})
        assert _found(store, "quokka") == [said]
        assert len(_found(store, "numbat")) == 3
        assert _found(store, "", tool="search_history"), "that it was called is found all the same"

    @pytest.mark.feature("E10")
    def test_whole_words_come_before_parts_of_words(self, store: Store, session: Session) -> None:
        session.assistant("the cat sat")
        for text in ("concatenate", "category", "cats"):
            session.assistant(text)
        found = store.search("cat")
        assert [hit.whole for hit in found] == [True, False, False, False]
        assert found[0].snippet == "the «cat» sat"
        assert {hit.snippet for hit in found[1:]} == {"con«cat»enate", "«cat»egory", "«cat»s"}
        assert len(store.search('"cat"')) == 1, "a phrase is whole words"
        assert len(store.search("cat -category")) == 3

    @pytest.mark.feature("E10")
    def test_sessions_are_hits_too(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            session = store.create_session(name)
            for number in range(4):
                session.user(f"the lynx, {name} {number}")
        found = store.search("lynx", group="session")
        assert len({hit.session_id for hit in found}) == len(found) == 3
        first = store.search("lynx", group="session", limit=2)
        second = store.search("lynx", group="session", limit=2, cursor=first.cursor)
        assert (len(first), len(second), second.cursor) == (2, 1, None)
        assert {hit.session_id for hit in (*first, *second)} == {hit.session_id for hit in found}

    @pytest.mark.feature("E10")
    @pytest.mark.parametrize("group", ["message", "session"])
    def test_pages_reach_every_match_once(self, store: Store, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from takeback.search import find

        sessions = [store.create_session(f"s{number}", title="bison") for number in range(5)]
        for number in range(40):
            text = ("bison", "bisons", "the bison and the bison", "no match")[number % 4]
            sessions[number * 7 % 5].user(f"{text} {number}")
        for window, titles in ((2000, 50), (7, 2), (1, 0)):
            monkeypatch.setattr(find, "WINDOW", window)
            monkeypatch.setattr(find, "TITLES", titles)
            found, cursor = list[Any](), None
            while True:
                page = store.search("bison", group=group, limit=3, cursor=cursor)
                found += page
                cursor = page.cursor
                assert page.exact == (window == 2000)
                if cursor is None:
                    break
            places = [(hit.session_id, hit.seq if group == "message" else 0) for hit in found]
            assert len(places) == len(set(places)), (window, places)
            assert len(places) == (35 if group == "message" else 5), window

    @pytest.mark.feature("E10")
    def test_a_session_that_only_reads_a_match_is_a_hit_by_its_own(self, store: Store) -> None:
        first = store.create_session("origin", title="A")
        first.user("lock")
        fork = first.fork(as_session=True, name="fork")
        fork.rename("B")
        fork.user("deadlock")
        assert {hit.session_id for hit in store.search("lock")} == {first.id, fork.id}
        assert {hit.session_id for hit in store.search("lock", group="session")} == {first.id, fork.id}

    @pytest.mark.feature("E10")
    def test_snippets_mark_whole_characters(self, store: Store, session: Session) -> None:
        for text in ("cafe\u0301 au lait", "か\u3099く", "well done 👍🏽 indeed", "die Straße", "İstanbul"):
            session.assistant(text)
        for text in ("warm ☕\ufe0f tea", "a ｶﾞｲﾄﾞﾌﾞｯｸ in all"):
            session.assistant(text)
        marked = {"café": "«café» au lait", "が": "«が»く", "👍": "well done «👍🏽» indeed", "strasse": "die «Straße»"}
        marked |= {"☕": "warm «☕\ufe0f» tea", "ガイド": "a «ｶﾞｲﾄﾞ»ﾌﾞｯｸ in all", "ック": "a ｶﾞｲﾄﾞﾌﾞ«ｯｸ» in all"}
        for query, snippet in {**marked, "istanbul": "«İstanbul»"}.items():
            assert [hit.snippet for hit in store.search(query, kinds=["message"])] == [snippet]

    @pytest.mark.feature("E10")
    def test_a_very_long_phrase_is_cut(self, store: Store, session: Session) -> None:
        session.user("語" * 3000)
        (hit,) = found = store.search("語" * 900)
        assert hit.seq == 1
        assert "only the beginning" in found.notes[0]
        assert len(store.search("語", path="a/" * 3000)) == 0

    @pytest.mark.feature("E10")
    def test_what_is_added_meanwhile_is_on_no_later_page(self, store: Store, session: Session) -> None:
        for number in range(6):
            session.user(f"the ibex {number}")
        first = store.search("ibex", kinds=["message"], limit=3)
        session.user("a new ibex")
        second = store.search("ibex", kinds=["message"], limit=9, cursor=first.cursor)
        assert len({hit.seq for hit in (*first, *second)}) == 6
        assert len(store.search("ibex", kinds=["message"])) == 7

    @pytest.mark.feature("E10")
    def test_new_words_change_no_later_page(
        self, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Be there few longer words that a part stands for, or too many."""
        from takeback.search import find

        monkeypatch.setattr(find, "PARTS", 30)
        for number in range(60):
            text = " ".join([f"pre{chr(97 + number % 15)}nect"] * (1 + number * 7 % 13))
            session.append({"role": "user", "content": f"{text} zz{number}foo"})

        def meanwhile() -> None:
            session.user(
                " ".join(["brandnewnect", *(f"aa{number}foo" for number in range(40 if query == "foo" else 0))])
            )

        for query, count in (("nect", 60), ("foo", 30)):
            pages = _pages(store, query, meanwhile, kinds=["message"])
            assert len(pages) == len(set(pages)) == count, query

    @pytest.mark.feature("E10")
    @pytest.mark.parametrize("group", ["message", "session"])
    def test_what_is_hidden_or_restored_meanwhile_moves_nothing_else(
        self, store: Store, group: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from takeback.search import find

        monkeypatch.setattr(find, "WINDOW", 24)
        monkeypatch.setattr(find, "TITLES", 4)
        olds = [store.create_session(f"old{number}", title=f"eland {number}") for number in range(8)]
        for number in range(40):
            olds[number % 8].user(" ".join(["eland"] * (1 + number * 7 % 5)))
        new = store.create_session("new")
        new.append(*({"role": "user", "content": " ".join(["eland"] * (1 + number * 5 % 7))} for number in range(30)))
        other = store.create_session("other", title="eland eland")

        def hide() -> None:
            store.delete_session(new)
            other.rename("something else")

        def restore() -> None:
            store.restore_session(new)
            other.rename("eland again")

        for meanwhile in (hide, restore):
            pages = _pages(store, "eland", meanwhile, group=group)
            expected = {(each.id, seq) for each in olds for seq in range(6)}
            assert len(pages) == len(set(pages))
            if group == "message":
                assert {each for each in pages if each[0] not in (new.id, other.id)} == expected
            else:
                assert {each.id for each in olds} <= {id for id, _ in pages}

    @pytest.mark.feature("E10")
    @pytest.mark.promise("R20")
    def test_nothing_that_can_be_typed_is_an_error(self, store: Store, session: Session) -> None:
        session.user("a pool closes; b is 'quoted' and \"double\"")
        other = store.scoped("other") if not store.scope else None
        if other is not None:
            other.create_session("theirs").user("a pool of somebody else")
        assert len(HOSTILE) >= 250
        for query in HOSTILE:
            for hit in store.search(query, branches=True):
                assert hit.session_id == session.id, query
        assert "first 32 words" in store.search(" ".join(f"w{n}" for n in range(50))).notes[0]

    @pytest.mark.feature("E10")
    def test_wrong_arguments_say_what_to_change(self, store: Store) -> None:
        wrong: list[dict[str, Any]] = [
            *({"limit": each} for each in (0, 1001, "5", True)),
            *({"group": each} for each in ("day", None, 3)),
            *({"kinds": each} for each in ("letter", ["message", 3], 5)),
            *({"since": each} for each in ("today", datetime(2024, 1, 1))),
            *({"cursor": each} for each in ("", "x", "s1.0.0", "s1." + "f." * 6, 5)),
            *(
                {"branches": 1},
                {"explain": "yes"},
                {"path": "//"},
                {"path": ""},
                {"agent": ""},
                {"roles": [None]},
                {"session": 5},
            ),
        ]
        wrong += [
            {"path": path, **where} for path in ("/a\0b", "/\ud800", 3, b"x") for where in ({}, {"workspace": "."})
        ]
        wrong += [{name: [f"v{number}" for number in range(101)]} for name in ("roles", "tool")]
        for each in wrong:
            with pytest.raises(Invalid):
                store.search("x", **each)
        for query in (None, 5, b"x"):
            with pytest.raises(Invalid):
                store.search(query)  # type: ignore[arg-type]
        store.create_session("many", title="x x").user("x")
        cursor = store.search("x", limit=1).cursor
        assert cursor is not None
        for words, changed in (("y", cursor), ("x", f"{cursor}.zz"), ("x", f"{cursor}.ff"), ("x", f"{cursor[:-1]}-")):
            with pytest.raises(Invalid):
                store.search(words, limit=1, cursor=changed)

    @pytest.mark.feature("E10")
    def test_a_filter_that_repeats_itself_is_as_quick_as_once(self, store: Store, session: Session) -> None:
        session.user("a wombat")
        repeated = store.search("wombat", roles=["user"] * 100_000, tool=None, limit=1)
        assert [hit.seq for hit in repeated] == [hit.seq for hit in store.search("wombat", roles="user")]

    @pytest.mark.feature("E10")
    def test_other_scopes_are_never_seen(self, store: Store) -> None:
        if store.scope:
            pytest.skip("this handle is bound to a scope")
        ours, theirs = store.scoped("acme"), store.scoped("rival")
        for each in (ours, theirs):
            each.create_session("same").user(f"the okapi of {each.scope}")
        store.create_session("same").user("the okapi of nobody")
        for each in (ours, theirs, store):
            (hit,) = each.search("okapi", kinds=["message"])
            assert hit.snippet == f"the «okapi» of {each.scope or 'nobody'}"
            assert len(each.search("okap", kinds=["message"], branches=True)) == 1
        theirs.purge_session("same")
        assert not theirs.search("okapi")
        assert ours.search("okapi")

    @pytest.mark.feature("E10")
    def test_what_another_scope_stores_changes_no_answer(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither which words there are nor how rare they are is told by anything that somebody else stored."""
        from takeback.search import find

        if store.scope:
            pytest.skip("this handle is bound to a scope")
        monkeypatch.setattr(find, "PARTS", 20)
        ours, theirs = store.scoped("acme"), store.scoped("acm")
        session = ours.create_session("weather")
        session.append(*({"role": "user", "content": f"the weather of day {number}"} for number in range(40)))
        session.append(*({"role": "user", "content": text} for text in ("a zzfoozz", "efooe", "a broken barometer")))

        def answers() -> list[Any]:
            asked = ("foo", "zzfoo", "weather barometer nowhere", "weather barometer nowhere -day", "the OR foo")
            found = [ours.search(query, limit=50, explain=True) for query in asked]
            return [
                (page.notes, [(hit.seq, hit.whole, hit.why and hit.why["words"]) for hit in page]) for page in found
            ]

        before = answers()
        assert [len(hits) for _, hits in before] == [2, 1, 1, 1, 43]
        for other in (theirs, store):
            others = [{"role": "user", "content": f"a{number}foo barometer, efood"} for number in range(600)]
            other.create_session("many").append(*others)
            assert not other.search("zzfooz")
            assert answers() == before
        assert "is part of more than 20 words" in theirs.search("foo").notes[0]

    @pytest.mark.feature("E10", "E7")
    def test_a_word_is_forgotten_though_another_scope_has_it(self, store: Store) -> None:
        if store.scope:
            pytest.skip("this handle is bound to a scope")
        ours, theirs = store.scoped("acme"), store.scoped("rival")
        for each in (ours, theirs, store):
            each.create_session("same").user("the quagga")
        assert ours.search("uagg")
        ours.purge_session("same")
        assert not ours.search("uagg", branches=True)
        assert all(len(each.search("uagg", kinds=["message"])) == 1 for each in (theirs, store))

    @pytest.mark.feature("E10")
    def test_a_new_index_finds_the_same(self, store: Store, session: Session) -> None:
        for number in range(30):
            session.user(f"the tapir {number}")
            if number == 20:
                session.rewind(10)
        before = _found(store, "tapir")
        seen = list[tuple[int, int | None]]()
        store.rebuild_search(progress=lambda done, total: seen.append((done, total)))
        assert _found(store, "tapir") == before
        assert not store.check_search()

    @pytest.mark.feature("E10", "C3")
    def test_a_large_backlog_is_indexed_in_batches(
        self, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from takeback.search import feeding

        monkeypatch.setattr(feeding, "CHANGES", 3)
        monkeypatch.setattr(feeding, "ENTRIES", 4)
        monkeypatch.setattr(feeding, "BYTES", 40)
        session.append(*({"role": "user", "content": f"one call, many gnus {number}"} for number in range(11)))
        for number in range(5):
            session.user(f"a gnu {number}")
        assert len(store.search("gnu", kinds=["message"], limit=100)) == 16
        assert len(store.search("gnu", kinds=["message"], limit=100, session=session)) == 16
