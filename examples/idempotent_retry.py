"""The connection broke after I sent a message: was it stored? If I send it again, will it be stored twice?

Give the call a key and simply repeat it. You get the first result again, even from another process, and nothing is
stored twice; the same key for something else is an error.
"""

import random
import tempfile
from collections.abc import Callable
from typing import TypeVar

import takeback

T = TypeVar("T")
network = random.Random(7)


def over_the_network(call: Callable[[], T]) -> T:
    """Lose the request or, worse, the reply."""
    if network.random() < 0.15:
        raise ConnectionError("request lost")
    answer = call()
    if network.random() < 0.4:
        raise ConnectionError("reply lost")
    return answer


def retried(call: Callable[[], T]) -> T:
    for _ in range(100):
        try:
            return over_the_network(call)
        except ConnectionError as error:
            print(f"  {error}, trying again")
    raise ConnectionError("gave up")


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/shop.db") as store:
    print("one order, however often it is sent:")
    s = retried(lambda: store.create_session("order-7", agent="clerk", idempotency_key="open order-7"))
    first = retried(lambda: s.user("Two bicycles, please", idempotency_key="order-7 line 1"))
    retried(lambda: s.append({"role": "assistant", "content": "Noted."}, idempotency_key="order-7 answer 1"))
    retried(lambda: s.state.update({"bicycles": 2}, idempotency_key="order-7 state 1"))
    retried(lambda: s.add_task("Pack two bicycles", idempotency_key="order-7 pack"))

    print(s, s.messages(), s.state.items(), s.tasks(), sep="\n")
    print("the same message again:", s.user("Two bicycles, please", idempotency_key="order-7 line 1") == first)
    try:
        s.user("Three bicycles, please", idempotency_key="order-7 line 1")
    except takeback.Conflict as error:
        print(f"{error.code}: {error}")
