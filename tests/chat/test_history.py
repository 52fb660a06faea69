"""Which turns are sent when the context fills, and what is kept of an answer that was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

import pytest
from tests.chat.scripted_chat import CUT, HANG, Refusal, Reply, ScriptedChat

from firsttoken.chat.answer import Answer
from firsttoken.chat.asking import ask, count_partial
from firsttoken.chat.chat_errors import AnswerCut, ContextTooLong
from firsttoken.chat.chat_server import ChatServer, Message
from firsttoken.chat.history import History, Turn, estimate, fit
from firsttoken.chat.settings import Model, Settings


class WordCount:
    """A tokeniser to which a word is a token. Notes how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, messages: Sequence[Message]) -> int | None:
        self.asked += 1
        return sum(len(message["content"].split()) for message in messages)


async def no_count(messages: Sequence[Message]) -> int | None:
    return None


def words(count: int) -> str:
    return " ".join(["word"] * count)


def long_history(turns: int, each: int = 50) -> History:
    """`turns` turns of twice `each` words."""
    return History("Be brief.", [Turn(words(each), words(each)) for _ in range(turns)])


async def test_a_short_chat_is_sent_whole_and_nobody_is_asked_to_count() -> None:
    history, count = History("Be brief."), WordCount()
    assert await fit(history, "hello", 4096, None, count) == 0
    history.add("hello", "Hi!", tokens=20)
    assert await fit(history, "and now?", 4096, None, count) == 0
    assert count.asked == 0
    assert [m["role"] for m in history.messages("and now?")] == ["system", "user", "assistant", "user"]


async def test_whole_oldest_turns_go_and_system_turn_and_question_stay() -> None:
    history = long_history(10)
    dropped = await fit(history, "last question", 1024, 100, WordCount())
    messages = history.messages("last question")
    assert 0 < dropped < 10
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[-1] == {"role": "user", "content": "last question"}
    assert [m["role"] for m in messages[1:-1]] == ["user", "assistant"] * (10 - dropped)
    assert len(history.turns) == 10  # nothing is forgotten
    assert sum(len(message["content"].split()) for message in messages) <= 1024 - 100


async def test_text_that_takes_more_tokens_than_estimated_does_not_cost_more_turns_than_needed() -> None:
    dense = History("", [Turn("a " * 50, "b " * 50) for _ in range(20)])  # four times the estimate
    await fit(dense, "q", 1024, 100, WordCount())
    assert 500 < sum(len(message["content"].split()) for message in dense.messages("q")) < 924


async def test_after_a_cut_the_next_turns_begin_alike_so_that_the_cache_holds() -> None:
    history, count = long_history(10), WordCount()
    assert await fit(history, "q", 1024, 100, count) > 0
    begins = history.messages("q")[:3]
    for _ in range(2):
        history.add(words(50), words(50))
        assert await fit(history, "q", 1024, 100, count) == 0
        assert history.messages("q")[:3] == begins


async def test_the_servers_own_count_saves_asking_until_the_room_is_short() -> None:
    history, count = long_history(5), WordCount()
    history.known_tokens = 500
    assert await fit(history, "short", 1024, 100, count) == 0
    assert count.asked == 0
    history.known_tokens = 920
    assert await fit(history, "short", 1024, 100, count) == 0  # it was only near
    assert count.asked == 1


async def test_without_a_tokeniser_the_estimate_decides() -> None:
    history = long_history(10)
    assert await fit(history, "q", 1024, 100, no_count) > 0
    assert await fit(history, "q", None, 100, no_count) == 0


async def test_a_question_that_alone_is_too_long_is_told_with_numbers() -> None:
    history = long_history(2)
    with pytest.raises(ContextTooLong, match="1,502 / 1,024 tokens"):
        await fit(history, words(1500), 1024, 100, WordCount())
    assert history.first == 0  # a short one after it is asked with all that was said


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("four", 1), ("hello", 2), ("你好", 2), ("你好 you", 3)])
def test_the_estimate_takes_four_letters_or_one_other_character_for_a_token(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def test_cutting_back_forgets_what_came_after() -> None:
    history = long_history(5)
    history.drop(4)
    history.cut_back(2)
    assert (len(history.turns), history.first) == (2, 2)
    assert history.drop(9) == 0


async def answers(
    chat: ScriptedChat, history: History, question: str, stop_after: int | None = None, max_tokens: int | None = None
) -> list[int]:
    """Asks; returns how many turns were no longer sent, each time that changed."""
    server, drops = ChatServer(chat.url), list[int]()
    model = Model("demo", 4096)
    stream = ask(
        server, model, history, question, Settings(max_tokens=max_tokens), answer := Answer(), on_drop=drops.append
    )
    try:
        async with aclosing(stream):
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == stop_after:
                    break
        await count_partial(server, model, answer)
        if stop_after:
            assert answer.completion_tokens == len(answer.text.split())
            assert not answer.counted
    finally:
        await server.close()
    return drops


async def test_the_whole_history_goes_with_every_turn() -> None:
    history = History("Be brief.")
    async with ScriptedChat(Reply(["Hi", "!"]), Reply(["Bye"])) as chat:
        await answers(chat, history, "hello")
        await answers(chat, history, "and now?")
    expected = [("system", "Be brief."), ("user", "hello"), ("assistant", "Hi!"), ("user", "and now?")]
    assert chat.histories[1] == expected
    assert history.known_tokens == 10


async def test_a_stopped_answer_is_kept_and_its_tokens_counted_afterwards() -> None:
    history = History()
    async with ScriptedChat(Reply(["half ", "an ", HANG])) as chat:
        await answers(chat, history, "go", stop_after=2)
    assert history.turns == [Turn("go", "half an ")]
    assert history.known_tokens is None


async def test_a_broken_answer_is_kept_and_a_question_without_any_is_not() -> None:
    history = History()
    async with ScriptedChat(Reply(["half", CUT]), Reply([CUT])) as chat:
        for _ in range(2):
            with pytest.raises(AnswerCut):
                await answers(chat, history, "go")
    assert history.turns == [Turn("go", "half")]


async def test_a_server_that_finds_it_too_long_gets_fewer_turns_until_it_fits() -> None:
    history = History("", [Turn(f"q{i}", "a") for i in range(5)])
    refusal = Refusal(400, "Too long.", "context_length_exceeded")
    async with ScriptedChat(refusal, refusal, Reply(["fits"])) as chat:
        assert await answers(chat, history, "last") == [2, 3]
    assert [len(request["messages"]) for request in chat.requests] == [11, 7, 5]
    assert len(history.turns) == 6


async def test_an_answer_whose_limit_does_not_fit_gets_the_room_that_is_left() -> None:
    refusal = Refusal(400, "Too long.", "context_length_exceeded")
    async with ScriptedChat(refusal, Reply(["short"])) as chat:
        await answers(chat, History(), "long", max_tokens=1000)
    assert [request.get("max_completion_tokens") for request in chat.requests] == [1000, None]


async def test_a_question_that_the_server_finds_too_long_alone_is_an_error() -> None:
    refusal = Refusal(400, "Too long.", "context_length_exceeded")
    history = History("", [Turn("q", "a")])
    async with ScriptedChat(refusal, refusal) as chat:
        with pytest.raises(ContextTooLong):
            await answers(chat, history, "long")
    assert history.first == 0
