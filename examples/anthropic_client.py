"""Talks to a running server with Anthropic's own client: streamed, then not. `pip install anthropic` first.

python examples/anthropic_client.py [URL of the server, by default http://127.0.0.1:8000]
"""

from __future__ import annotations

import sys

from anthropic import Anthropic
from anthropic.types import MessageParam


def main(url: str) -> None:
    client = Anthropic(base_url=url.removesuffix("/v1"), api_key="none")
    model = client.models.list().data[0].id
    turns: list[MessageParam] = [{"role": "user", "content": "What is gravity?"}]
    print(client.messages.count_tokens(model=model, messages=turns).input_tokens, "tokens")

    with client.messages.stream(model=model, max_tokens=64, messages=turns) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        said = stream.get_final_message()
    print(f"\n{said.stop_reason}")

    turns += [{"role": "assistant", "content": said.content}, {"role": "user", "content": "Who found it?"}]
    answer = client.messages.create(model=model, max_tokens=32, system="Be brief.", messages=turns)
    print([block.text for block in answer.content if block.type == "text"])
    print(answer.usage)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
