"""The report's words in English and Chinese: names, definitions of every metric, and what each self-check means."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from firsttoken.bench.records import LoadSpec


@dataclass(frozen=True, slots=True)
class Words:
    """A text in both languages."""

    en: str
    zh: str

    @property
    def html(self) -> str:
        """Both, of which the page's language shows one."""
        if self.en == self.zh:
            return escape(self.en)
        return f'<span class="en">{escape(self.en)}</span><span class="zh" lang="zh">{escape(self.zh)}</span>'


def same(text: str) -> Words:
    """A text that both languages share: numbers, names, commands."""
    return Words(text, text)


TTFT = Words("TTFT", "TTFT（首 token 延迟）")
TPOT = Words("TPOT", "TPOT（每 token 时间）")
GAP = Words("Gap between chunks", "数据块间隔")
WORST_GAP = Words("Worst gap of a request", "单请求最长间隔")
WORST_TOKEN_GAP = Words("Worst token gap of a request", "单请求最长 token 间隔")
NOT_COUNTED = Words(
    "absent: the server did not count each chunk's tokens, and there was no --tokenizer",
    "缺失：服务没有给出每个数据块的 token 数，也没有用 --tokenizer",
)
E2E = Words("End to end", "端到端")
TTFT_SCHEDULED = Words("TTFT from schedule", "TTFT（从计划时刻算）")
E2E_SCHEDULED = Words("End to end from schedule", "端到端（从计划时刻算）")
SEND_LAG = Words("Send lag", "发送滞后")
OUTPUT = Words("Output tok/s", "输出 tok/s")
TOTAL = Words("Total tok/s", "总 tok/s")
GOODPUT = Words("Goodput", "有效吞吐（goodput）")

DEFINITIONS: tuple[tuple[str, Words, Words], ...] = (
    (
        "ttft",
        TTFT,
        Words(
            "Time to first token: from handing the request's first byte to the socket until the first chunk that "
            "carries text. Role chunks and empty deltas do not count. A new connection is part of it.",
            "首 token 延迟：从请求的第一个字节交给套接字，到收到第一个带文本的数据块为止。"
            "角色块和空增量不算；新建连接的时间计入。",
        ),
    ),
    (
        "tpot",
        TPOT,
        Words(
            "Time per output token of one request, the first one left out: last chunk minus first chunk, over its "
            "tokens minus one.",
            "单个请求中首 token 之后每个输出 token 的时间：最后一块与第一块的时间差，除以 token 数减一。",
        ),
    ),
    (
        "gap",
        GAP,
        Words(
            "Time between neighbouring chunks of one request; the inter-token latency (ITL) where every chunk "
            "carries one token.",
            "同一请求相邻数据块之间的时间；当每块恰好一个 token 时，它就是 token 间延迟（ITL）。",
        ),
    ),
    (
        "worst",
        WORST_GAP,
        Words("The longest gap that each request saw.", "每个请求遇到的最长停顿。"),
    ),
    (
        "token-gap",
        WORST_TOKEN_GAP,
        Words(
            "The longest gap of each request when a gap is divided among the tokens of the chunk that ended it: half a "
            "character has no text, so its token comes with the next. Known only where tokens were counted by chunk.",
            "把每个间隔除以结束它的那个数据块所含的 token 数，再取每个请求的最大值："
            "半个字符没有文本，它的 token 会和下一个一起到达。只有逐块计数时才知道。",
        ),
    ),
    (
        "e2e",
        E2E,
        Words("From send to the end of the answer.", "从发送到回答结束。"),
    ),
    (
        "scheduled",
        Words("From schedule", "从计划时刻算"),
        Words(
            "The same, from the moment at which an open loop meant to send: a client that falls behind cannot hide "
            "the wait. Send lag is the difference.",
            "同上，但从开环负载计划发送的时刻起算：客户端来不及发送时，等待也不会被隐藏。发送滞后就是两者之差。",
        ),
    ),
    (
        "output",
        OUTPUT,
        Words(
            "Output tokens of all answers over the time from the first send to the last end. Total adds the prompts.",
            "所有回答的输出 token 数，除以从第一次发送到最后一次结束的时间。总 tok/s 还包括提示词。",
        ),
    ),
    (
        "goodput",
        GOODPUT,
        Words("Requests a second that met every limit of --slo.", "每秒满足 --slo 全部限制的请求数。"),
    ),
    (
        "cached",
        Words("Cached tokens", "缓存命中 token"),
        Words(
            "Prompt tokens that the server says it took from its prefix cache.",
            "服务报告的、直接取自前缀缓存的提示词 token 数。",
        ),
    ),
    (
        "ceiling",
        Words("Ceiling, share", "上限与占比"),
        Words(
            "What the machine's memory bandwidth and arithmetic allow for this model and load; the share is how much "
            "of that was reached. Above 100 % is impossible and fails the run.",
            "按本机内存带宽与算力，这个模型在这种负载下最好能做到的数值；占比即达到了多少。"
            "超过 100 % 不可能，会判定运行失败。",
        ),
    ),
    (
        "percentile",
        Words("P50, P90, P99", "P50、P90、P99"),
        Words(
            "Printed only where the sample carries them: 5, 29 and 299 values at least. Elsewhere a dash.",
            "样本足够才给出：分别至少需要 5、29、299 个值，否则显示短横线。",
        ),
    ),
)

_CHECKS: dict[str, Words] = {
    "client": Words("Client's own speed", "客户端自身速度"),
    "schedule": Words("Send schedule", "发送计划"),
    "prompt-tokens": Words("Prompt lengths", "提示词长度"),
    "output-tokens": Words("Output lengths", "输出长度"),
    "cache": Words("Prefix cache", "前缀缓存"),
    "warm-up": Words("Warm-up", "预热"),
    "errors": Words("Errors", "错误"),
    "clocks": Words("GPU clocks", "GPU 频率"),
    "roofline": Words("Ceiling", "性能上限"),
    "arrival": Words("Arrival", "到达时机"),
}

_CHINESE_ADVICE: dict[str, str] = {
    "client": "客户端被耽搁或接近自身上限，时间戳可能偏晚；请给客户端留出自己的核，或增加客户端进程。",
    "schedule": "请求没有按计划时刻发出。",
    "prompt-tokens": "提示词的 token 数与要求不符，或无法核对。",
    "output-tokens": "输出的 token 数与要求不符，或无法核对。",
    "cache": "前缀缓存的状态不符合预期，或无法核对。",
    "warm-up": "预热不足或样本太少；请加大预热或请求数。",
    "errors": "有请求没有得到完整回答。",
    "clocks": "GPU 频率受限，数字会偏低。",
    "arrival": "长提示词到来时，其余各路没有全部处于解码状态：服务没有同时运行这么多路，或它们的回答太短。",
    "roofline": "数字超过或无法对照性能上限；请核对模型配置与带宽。",
}
"""What a flagged or failed check means; its own sentence, with the numbers, is English."""

_FIGURES: dict[str, Words] = {"ttft": TTFT, "tpot": TPOT, "output_tokens_per_s": OUTPUT}

_METHODS: dict[str, Words] = {
    "memory": Words("memory bound", "受内存带宽限制"),
    "compute": Words("compute bound", "受算力限制"),
    "both": Words("memory and compute", "同时受带宽与算力限制"),
}


def check_name(name: str) -> Words:
    """A self-check's name for people; an unknown one stays as it is."""
    return _CHECKS.get(name, same(name))


def advice(name: str, text: str) -> Words:
    """A flagged or failed check's sentence; in Chinese, what such a check means stands before it."""
    chinese = _CHINESE_ADVICE.get(name)
    return Words(text, f"{chinese}（{text}）" if chinese else text)


def figure_name(figure: str) -> Words:
    """A figure of the roofline for people."""
    return _FIGURES.get(figure, same(figure))


def bound_name(bound: str) -> Words:
    """What sets a ceiling, for people."""
    return _METHODS.get(bound, same(bound))


def load_name(load: LoadSpec) -> Words:
    """A load's label for people."""
    if load.arrivals == "trace":
        return Words(load.label, f"{len(load.trace)} 个请求的时间表")
    if load.open:
        shape = "泊松到达" if load.arrivals == "poisson" else "匀速到达"
        return Words(load.label, f"每秒 {load.rate:g} 个，{shape}")
    later = f"，随后再来 {load.held} 个" if load.held else ""
    return Words(load.label, f"并发 {load.concurrency}{later}")
