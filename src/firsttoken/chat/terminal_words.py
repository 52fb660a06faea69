"""What the terminal chat says, in English and Chinese."""

from __future__ import annotations

from firsttoken.chat.language import Words

WELCOME = Words(
    "{model} at {url}. Type a message, or /help. Alt-Enter or a \\ at the end begins a new line.",
    "{model}，位于 {url}。直接输入消息，或用 /help 查看命令；按 Alt-Enter 或在行尾加 \\ 可换行。",
)
STARTING = Words("Starting the server", "正在启动服务")
LEAVE = Words("Ctrl-D or /quit leaves.", "按 Ctrl-D 或输入 /quit 退出。")
STOPPED = Words("Stopped.", "已停止。")
TRYING_AGAIN = Words(
    "{error} Trying again in {seconds} s; Ctrl-C gives up.", "{error}{seconds} 秒后重试；按 Ctrl-C 放弃。"
)
WAITING = Words("{error} Ctrl-C gives up.", "{error}按 Ctrl-C 放弃。")
DROPPED = Words(
    "The context is full: the oldest turns ({turns}) are no longer sent.", "上下文已满：最早的 {turns} 轮对话不再发送。"
)
EMPTY = Words("The answer was empty.", "回答是空的。")

NO_COMMAND = Words(
    "There is no command {name}; /help lists them.",
    "没有 {name} 这个命令；用 /help 查看全部命令。",
)
MEANT = Words("There is no command {name}; did you mean {near}?", "没有 {name} 这个命令；您是想用 {near} 吗？")
KEYS = Words(
    "Ctrl-C stops an answer and keeps what was said; Ctrl-D leaves.\n"
    "Alt-Enter or a \\ at the end begins a new line; Ctrl-R searches what you typed before.",
    "Ctrl-C 停止回答并保留已有内容；Ctrl-D 退出。\nAlt-Enter 或行尾的 \\ 换行；Ctrl-R 搜索以前输入的内容。",
)

HELP = Words("this list", "显示本列表")
NEW = Words("begin a new conversation", "开始新对话")
SYSTEM = Words("show, set or (with `none`) remove the system message", "查看、设置或（用 none）移除系统消息")
SET = Words("show or change how answers are sampled; `default` resets", "查看或修改采样参数；default 恢复默认")
MODEL = Words("list the models, or change to one", "列出模型，或切换模型")
REGENERATE = Words("ask the last question again", "重新回答上一个问题")
EDIT = Words(
    "change the last question, or question N, and go on from there",
    "修改上一个（或第 N 个）问题，从那里继续",
)
HISTORY = Words("what was said so far", "查看到目前为止的对话")
SAVE = Words("name this conversation, to find it again", "给本次对话命名，方便以后查找")
LOAD = Words("list the kept conversations, or go on with one", "列出保存的对话，或继续其中一个")
SEARCH = Words("find words in the kept conversations", "在保存的对话中搜索")
EXPORT = Words("write this conversation to a Markdown file", "把本次对话导出为 Markdown 文件")
FILE = Words(
    "add a text or code file to the next question; `none` drops them", "把文本或代码文件附到下一个问题；none 取消"
)
QUIT = Words("leave (also /exit, Ctrl-D)", "退出（也可用 /exit、Ctrl-D）")

BEGUN = Words("A new conversation.", "新对话。")
SYSTEM_IS = Words("System message: {text}", "系统消息：{text}")
NO_SYSTEM = Words("There is no system message.", "没有系统消息。")
SETTING = Words("{name} = {value}", "{name} = {value}")
OWN_DEFAULT = Words("{value} (the model's default)", "{value}（模型默认）")
SERVERS_DEFAULT = Words("the server's default", "服务器默认")
NO_SETTING = Words("There is no setting {name}; /set lists them.", "没有 {name} 这个参数；用 /set 查看全部参数。")
WRONG_VALUE = Words("{name} takes {kind}.", "{name} 的取值应为{kind}。")
A_NUMBER = Words("a number", "数字")
A_WHOLE_NUMBER = Words("a whole number", "整数")
A_SCHEMA = Words("a file with a JSON schema", "内容为 JSON schema 的文件")
MODEL_IS = Words("{name} answers from now on.", "现在由 {name} 回答。")
NO_MODEL = Words(
    "The server has no model {name}; /model lists them.", "服务器没有 {name} 这个模型；用 /model 查看列表。"
)
TOKENS = Words("{count:,} tokens", "{count:,} 个 token")
NOTHING_YET = Words("Nothing has been said yet.", "还没有对话内容。")
NO_TURN = Words(
    "There is no question {number}; /history numbers them.", "没有第 {number} 个问题；用 /history 查看编号。"
)
NOT_SENT = Words("(no longer sent)", "（不再发送）")
USE = Words("{used:,} of {context:,} tokens of context", "上下文已用 {used:,} / {context:,} 个 token")
NOT_KEPT = Words("This chat is not kept (--no-save).", "本次聊天不保存（--no-save）。")
SAVED = Words("Kept as “{title}”.", "已保存为“{title}”。")
NO_SAVED = Words("No conversation is kept yet.", "还没有保存的对话。")
NO_SUCH_SAVED = Words(
    "There is no conversation {number}; /load lists them.", "没有编号为 {number} 的对话；用 /load 查看列表。"
)
LOADED = Words("Going on with “{title}” ({turns} turns).", "继续“{title}”（{turns} 轮）。")
NOT_FOUND = Words("Nothing found for {words}.", "没有找到 {words}。")
EXPORTED = Words("Written to {path}.", "已写入 {path}。")
FILE_EXISTS = Words("{path} exists already; name another file.", "{path} 已存在；请换一个文件名。")
CANNOT_WRITE = Words("{path} cannot be written: {reason}.", "无法写入 {path}：{reason}。")
CANNOT_KEEP = Words("This conversation cannot be kept: {reason}.", "无法保存本次对话：{reason}。")
FILE_ADDED = Words("{name} goes with the next question{size}.", "{name} 将随下一个问题发送{size}。")
FILE_SIZE = Words(" ({count:,} tokens)", "（{count:,} 个 token）")
NO_FILES = Words("No file goes with the next question.", "下一个问题没有附带文件。")
NOT_TEXT = Words("{path} is not a text file.", "{path} 不是文本文件。")
FILE_TOO_LARGE = Words("{path} is larger than {limit} KiB.", "{path} 超过 {limit} KiB。")
CANNOT_READ = Words("{path} cannot be read: {reason}.", "无法读取 {path}：{reason}。")
TOO_MANY_FILES = Words("At most {most} files go with one question.", "一个问题最多附带 {most} 个文件。")
YOU = Words("You", "您")
