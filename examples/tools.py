"""A model calls a function, gets its result and answers, with OpenAI's own client. `pip install openai` first.

python examples/tools.py [URL of the API, by default http://127.0.0.1:8000/v1]

Qwen3 and Qwen2.5 call by themselves. The demo model must be shown how, and is too small to decide:
firsttoken serve demo --chat-template examples/chatml_tools.jinja
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import BadRequestError, OpenAI

TEMPERATURES = {"Paris": 21, "Berlin": 17, "北京": 25}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_temperature",
            "description": "The temperature in a city, in degrees Celsius.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": list(TEMPERATURES)}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "strict": True,  # the arguments keep to the schema, whatever the model thinks
        },
    }
]


def get_temperature(city: str) -> str:
    return json.dumps({"celsius": TEMPERATURES[city]})


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": "How warm is it in Berlin?"}]

    # "required" makes sure that there is a call; without it the model decides.
    with client.chat.completions.stream(
        model=model, messages=messages, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, temperature=0
    ) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                print(event.arguments_delta, end="", flush=True)
        message = stream.get_final_completion().choices[0].message
    print()

    messages.append(message)
    for call in message.tool_calls or ():
        result = get_temperature(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) is {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="none", max_completion_tokens=64, temperature=0
    )
    print(answer.choices[0].message.content)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
    except BadRequestError as error:  # say, a model whose template knows no tools; the server says what to do
        sys.exit(f"Error: {error.body['message'] if isinstance(error.body, dict) else error}")
