"""The Responses API with OpenAI's own client: streamed, then on with the conversation. `pip install openai` first.

Nothing is stored on the server, so a conversation goes on by sending its items again.

python examples/openai_responses.py [URL of the API, by default http://127.0.0.1:8000/v1]
"""

from __future__ import annotations

import sys

from openai import OpenAI
from openai.types.responses import ResponseInputParam


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    items: ResponseInputParam = [{"role": "user", "content": "What is gravity?"}]
    said = ""
    stream = client.responses.create(model=model, input=items, max_output_tokens=64, temperature=0, stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
            said += event.delta
    print()

    items += [{"role": "assistant", "content": said}, {"role": "user", "content": "Who found it?"}]
    answer = client.responses.create(model=model, instructions="Be brief.", input=items, max_output_tokens=32)
    print(answer.output_text)
    print(answer.usage)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
