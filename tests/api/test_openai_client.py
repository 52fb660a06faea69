"""OpenAI's own client, sync and async, streamed and not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.api.live_server import HELLO, LiveServer


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_chat_answers_with_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content == HELLO
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_a_streamed_chat_with_usage(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == HELLO
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(HELLO) + 1


def test_the_clients_stream_helper_puts_the_answer_together(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], logprobs=True, top_logprobs=2
    ) as stream:
        for _event in stream:
            pass
        answer = stream.get_final_completion()
    assert answer.choices[0].message.content == HELLO
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.content or []) == len(HELLO)


def test_a_completion_of_id_lists_answers_each_with_logprobs(client: OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=[[1, 2, 3], [4]], logprobs=2)
    assert [choice.text for choice in answer.choices] == [HELLO, HELLO]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == list(HELLO)


def test_a_streamed_completion(client: OpenAI) -> None:
    stream = client.completions.create(model="tiny", prompt="Hi", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == HELLO


def test_the_list_of_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_errors_are_the_clients_own_kinds(client: OpenAI, server: LiveServer) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], temperature=-1)
    assert caught.value.param == "temperature"
    server.backend.capacity = 0
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])
    server.backend.capacity = 1
    server.backend.fails_after = 2
    stream = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], stream=True)
    with pytest.raises(openai.APIError, match="The step failed"):
        list(stream)
    server.backend.fails_after = None
    server.next_is_right()


async def test_an_async_chat(async_client: AsyncOpenAI) -> None:
    answer = await async_client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content == HELLO


async def test_an_async_streamed_chat(async_client: AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == HELLO


async def test_an_async_stream_that_is_left_frees_the_engine(async_client: AsyncOpenAI, server: LiveServer) -> None:
    server.says("x" * 200)
    server.backend.pace = 0.01
    stream = await async_client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    server.backend.pace = 0
    server.next_is_right()
    assert len(server.backend.aborted) == 1


async def test_an_async_completion(async_client: AsyncOpenAI) -> None:
    answer = await async_client.completions.create(model="tiny", prompt="Hi", n=2)
    assert [choice.text for choice in answer.choices] == [HELLO, HELLO]
