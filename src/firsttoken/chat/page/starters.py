"""What one click asks: the three uses that the product is made for, and a coding classic."""

from __future__ import annotations

from typing import NamedTuple

from firsttoken.chat.language import Words


class Starting(NamedTuple):
    label: Words
    question: Words


STARTERS = (
    Starting(
        Words("Write a product text", "写商品文案"),
        Words(
            "Write a product description of at most 120 words for a stainless-steel vacuum flask: 500 ml, keeps drinks"
            " hot for 12 hours and cold for 24, leak-proof lid, dishwasher-safe. Friendly, concrete, no superlatives."
            " End with three bullet points.",
            "为一款不锈钢保温杯写一段商品文案，不超过 150 字：500 毫升，保温 12 小时、保冷 24 小时，"
            "杯盖防漏，可用洗碗机清洗。语气亲切具体，不用夸张词，最后列出三个卖点。",
        ),
    ),
    Starting(
        Words("Answer a customer", "回复客户"),
        Words(
            "A customer writes: “My order arrived two days late and the mug is cracked. I want my money back.” Write a"
            " short, kind reply that apologises, offers a refund or a replacement, and says what happens next.",
            "客户来信：“订单晚到了两天，杯子还裂了，我要退款。”请写一封简短友善的回复：致歉，提供退款或换货两种选择，并说明接下来的步骤。",
        ),
    ),
    Starting(
        Words("Review some code", "审查代码"),
        Words(
            "Find the bug in this Python function, explain it in one sentence, and give the corrected code:\n\n"
            "```python\ndef append_item(item, items=[]):\n    items.append(item)\n    return items\n```",
            "找出下面这个 Python 函数的错误，用一句话说明原因，并给出修正后的代码：\n\n"
            "```python\ndef append_item(item, items=[]):\n    items.append(item)\n    return items\n```",
        ),
    ),
    Starting(
        Words("Quicksort in Python", "用 Python 写快速排序"),
        Words(
            "Write quicksort in Python with type hints and a short docstring, then explain its running time.",
            "用 Python 写一个快速排序，带类型注解和简短的文档字符串，然后说明它的时间复杂度。",
        ),
    ),
)
