"""What a search looks through: short texts with words of which it is known how often they are there.

Four in ten are prose, sentences of docstrings and comments; the others are lines of the standard library's sources
under their path. One in fifty is Chinese or Japanese instead. The made-up words below are in as many texts as they say
and in no other. The same seed gives the same texts on the same Python, without a network.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

RARE, RARE_TIMES = "zqneedle", 10
COMMON, COMMON_EVERY = "kubeflange", 1000
CJK, CJK_LONG, CJK_EVERY = "鲸鱼", "鲸鱼在这", 1000
CJK_COMMON = "的"  # one in a hundred texts, in many words
EVERYWHERE = "self"  # a word that code is full of
PHRASE = "the current thread"  # docstrings say it now and then
_SHARES = 0.02, 0.4, 0.58  # Chinese and Japanese, prose, code
_FILES = 400
_CHINESE = (
    "今天的会议讨论了数据库的性能问题",
    "请把这个函数改成异步的",
    "测试在本地通过但是在服务器上失败",
    "我们需要重新设计存储层的接口",
    "配置文件里的路径写错了",
    "这个错误只在高并发的时候出现",
    "日志显示连接池已经用完",
    "先回滚到上一个版本再看",
)
_JAPANESE = (
    "データベースの接続が切れました",
    "この関数は非同期にしてください",
    "テストはローカルでは成功します",
    "設定ファイルを確認してください",
    "ログを見ると原因がわかります",
    "検索の結果が正しくないようです",
)


class _Corpus(NamedTuple):
    """Sources as lines with their paths, and sentences."""

    sources: list[tuple[str, list[str]]]
    sentences: list[str]


@lru_cache(maxsize=1)
def _corpus() -> _Corpus:
    """Read some hundred modules of the standard library, packages included."""
    root = Path(sysconfig.get_paths()["stdlib"])
    sources, sentences = list[tuple[str, list[str]]](), list[str]()
    paths = [*sorted(root.glob("*.py")), *sorted(root.glob("*/*.py"))]
    for path in [each for each in paths if not {"test", "site-packages"} & set(each.parts)][:_FILES]:
        text = path.read_text("utf-8", "ignore")
        sources.append((f"src/{path.relative_to(root).as_posix()}", text.split("\n")))
        for found in re.findall(r'"""(.{40,}?)"""', text, re.DOTALL):
            parts = re.split(r"(?<=[.!?]) ", re.sub(r"\s+", " ", found))
            sentences += [part.strip() for part in parts if 25 < len(part) < 300]
        sentences += re.findall(r"(?:^|\n)\s*# (.{40,200})", text)
    return _Corpus(sources, sentences)


def stream(count: int, seed: int) -> Iterator[str]:
    """Return so many texts."""
    rng, kinds = random.Random(seed * 7919 + 6), (_asian, _prose, _code)
    for number in range(count):
        text = rng.choices(kinds, _SHARES)[0](rng)
        if number % max(1, count // RARE_TIMES) == 7:
            text += f" {RARE}"
        if number % COMMON_EVERY == 3:
            text += f" {COMMON}" + f" {EVERYWHERE}" * (number // COMMON_EVERY % 2 == 0)
        if number % CJK_EVERY == 5:
            text += f"，{CJK_LONG}里。"
        yield f"{text} id{rng.randrange(count)}"


def _prose(rng: random.Random) -> str:
    return " ".join(rng.choices(_corpus().sentences, k=rng.randrange(1, 5)))


def _code(rng: random.Random) -> str:
    path, lines = rng.choice(_corpus().sources)
    start = rng.randrange(max(1, len(lines) - 10))
    return "\n".join([path, *lines[start : start + rng.randrange(2, 14)]])


def _asian(rng: random.Random) -> str:
    sentences = _CHINESE if rng.random() < 0.5 else _JAPANESE
    return "。".join(rng.choices(sentences, k=rng.randrange(2, 8))) + "。"
