"""Talks to a running server with OpenAI's own client: streamed, then not. `pip install openai` first.

python examples/openai_client.py [URL of the API, by default http://127.0.0.1:8000/v1]
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is gravity?"}],
        max_completion_tokens=64,
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()

    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Name three colours."}], max_completion_tokens=32
    )
    print(answer.choices[0].message.content)
    print(answer.usage)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
