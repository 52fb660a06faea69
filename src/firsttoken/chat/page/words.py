"""What the page says, in both languages."""

from __future__ import annotations

from firsttoken.chat.language import Words

COPY = Words("Copy", "复制")
COPIED = Words("Copied", "已复制")
AGAIN = Words("Regenerate", "重新生成")
RETRY = Words("Try again", "重试")
EXPORT = Words("Export this chat", "导出此对话")
STOPPED = Words("Stopped.", "已停止。")
CUT = Words(
    "The answer was cut at the limit of {tokens} tokens: raise “Longest answer” in the settings, or ask to go on.",
    "回答达到 {tokens} 个 token 的上限而被截断：可在设置中调高“最长回答”，或让模型继续。",
)
CUT_CONTEXT = Words(
    "The answer was cut: the model's context is full. Start a new chat for a new subject.",
    "回答被截断：模型的上下文已满。换话题时请新建对话。",
)
DROPPED = Words(
    "The context is full: the {turns} oldest turns are no longer sent to the model. They stay readable here.",
    "上下文已满：最早的 {turns} 轮对话不再发送给模型，但仍保留在此处供查看。",
)
DROPPED_ONE = Words(
    "The context is full: the oldest turn is no longer sent to the model. It stays readable here.",
    "上下文已满：最早的一轮对话不再发送给模型，但仍保留在此处供查看。",
)
THINKING = Words("Thinking", "思考过程")
WAIT_DOWN = Words(
    "The model server does not answer. Trying again; your question is sent as soon as it is back.",
    "模型服务没有应答，正在重试；恢复后会自动发送你的问题。",
)
WAIT_LOADING = Words(
    "The model is loading; your question is sent when it is ready.", "模型正在加载，就绪后会自动发送你的问题。"
)
WAIT_BUSY = Words("The server's queue is full; your question waits for a place.", "服务器队列已满，你的问题正在排队。")
STATE_DOWN = Words("The model server does not answer. Trying again…", "模型服务没有应答，正在重试……")
STATE_LOADING = Words("The model is loading…", "模型正在加载……")
STATE_BACK = Words("The model server answers again.", "模型服务已恢复。")

MODEL = Words("Model", "模型")
SYSTEM = Words("System prompt", "系统提示词")
SYSTEM_HINT = Words("How the model is to behave in this chat", "模型在此对话中的行为方式")
TEMPERATURE = Words("Temperature", "温度（temperature）")
TEMPERATURE_HINT = Words("0 always takes the likeliest token; 0 to 2", "0 表示总取最可能的 token；范围 0 到 2")
TOP_P_HINT = Words(
    "Sample from the likeliest tokens of this total probability; above 0, to 1",
    "只从累计概率达到该值的 token 中采样；大于 0，至 1",
)
TOP_K_HINT = Words(
    "Sample from this many of the likeliest tokens; 0 for all", "只从最可能的若干 token 中采样；0 表示不限"
)
MIN_P_HINT = Words(
    "Drop tokens below this share of the likeliest one; 0 to 1", "去掉低于最高概率该比例的 token；0 到 1"
)
PRESENCE = Words("Presence penalty", "存在惩罚（presence）")
FREQUENCY = Words("Frequency penalty", "频率惩罚（frequency）")
REPETITION = Words("Repetition penalty", "重复惩罚（repetition）")
PENALTY_HINT = Words("Less repetition above 0; -2 to 2", "大于 0 时减少重复；-2 到 2")
REPETITION_HINT = Words("Less repetition above 1; above 0, to 10", "大于 1 时减少重复；大于 0，至 10")
MAX_TOKENS = Words("Longest answer", "最长回答")
MAX_TOKENS_HINT = Words("Tokens; empty: up to the context's end", "token 数；留空则直到上下文用完")
SEED = Words("Seed", "随机种子（seed）")
SEED_HINT = Words("The same seed and settings give the same answer again", "相同的种子和设置会得到相同的回答")
SCHEMA = Words("JSON schema", "JSON Schema")
SCHEMA_HINT = Words("The answer will be JSON of this form", "回答将是符合此模式的 JSON")
RESET = Words("Back to the recommended values", "恢复推荐值")
RESET_HINT = Words(
    "Empties every field here but model and system prompt", "清空此面板中除模型和系统提示词以外的所有字段"
)
RECOMMENDED = Words("{value} (recommended)", "{value}（推荐值）")
SERVER_CHOOSES = Words("recommended", "推荐值")
NO_NUMBER = Words("{label}: “{value}” is not a number.", "{label}：“{value}”不是数字。")
OUT_OF_RANGE = Words("{label} must be {low} to {high}.", "{label} 的范围是 {low} 到 {high}。")
NO_SCHEMA = Words("The JSON schema is not a JSON object: {reason}.", "JSON Schema 不是有效的 JSON 对象：{reason}。")

FILE_TEXT_ONLY = Words(
    "{name} is not a text file; only text and code can be attached.", "{name} 不是文本文件；只能附加文本或代码。"
)
FILE_TOO_LARGE = Words("{name} is larger than {limit} KB.", "{name} 超过 {limit} KB。")
FILE_TOKENS = Words("{name}: {tokens} tokens of the {room} that fit.", "{name}：{tokens} 个 token，最多 {room} 个。")
FILE_TOO_LONG = Words(
    "{name} has {tokens} tokens and only {room} fit into the model's context; attach a part of it.",
    "{name} 有 {tokens} 个 token，而模型上下文最多容纳 {room} 个；请只附加一部分。",
)
