"""Generates without a server: the same engine in this process.

python examples/offline.py [MODEL, by default the demo]
"""

from __future__ import annotations

import sys

from firsttoken import LLM, SamplingParams


def main(model: str) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=24)
    prompts = ["The capital of France is", "def fibonacci(n):"]
    with LLM(model) as llm:
        for result in llm.generate(prompts, greedy):
            print(f"{result.prompt}|{result.outputs[0].text}")
        (answer,) = llm.chat([{"role": "user", "content": "Name three colours."}], greedy)
        print(answer.outputs[0].text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo")
