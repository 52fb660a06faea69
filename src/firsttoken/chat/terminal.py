"""A chat in a terminal: lines in, streamed answers out, one line of figures under each."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from firsttoken.chat.client import Answer, ChatClient, ChatError, Options

HELP = """/help   this list
/clear  forget the conversation so far
/quit   leave (also /exit, or Ctrl-D)
Ctrl-C  stop the answer, keep the conversation"""

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

ReadLine = Callable[[str], str]
"""Shows a prompt and returns a line. Raises EOFError at the end of input and KeyboardInterrupt on Ctrl-C."""


class Conversation:
    """The messages of one chat, as they are sent: the whole of it each turn."""

    def __init__(self, system: str | None = None) -> None:
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._system)

    def clear(self) -> None:
        self.messages = list(self._system)

    def add(self, question: str, answer: str) -> None:
        self.messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


class TerminalChat:
    """Reads lines until the user leaves. Errors of one turn are told and the chat goes on."""

    def __init__(
        self,
        client: ChatClient,
        model: str,
        *,
        console: Console,
        read_line: ReadLine,
        system: str | None = None,
        options: Options | None = None,
        footnote: Callable[[Answer], str | None] = lambda answer: None,
    ) -> None:
        """`footnote` may add a second line of figures under an answer."""
        self._client = client
        self._model = model
        self._console = console
        self._read_line = read_line
        self._options = options or Options()
        self._footnote = footnote
        self.conversation = Conversation(system)

    def run(self) -> None:
        """Talks until /quit, /exit or the end of input."""
        self._note("Type a message, or /help.")
        while True:
            try:
                line = self._read_line("\n> ").strip()
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._console.print()
                self._note("Ctrl-D or /quit leaves.")
                continue
            if line in ("/quit", "/exit"):
                return
            if line == "/help":
                self._note(HELP)
            elif line == "/clear":
                self.conversation.clear()
                self._note("Forgotten.")
            elif line.startswith("/") and " " not in line:
                self._note(f"There is no command {line}; /help lists them.")
            elif line:
                self.turn(line)

    def turn(self, question: str) -> Answer | None:
        """Asks, prints the answer as it comes and its figures; None when nothing came back.

        What was said before Ctrl-C or a broken connection stays in the conversation.
        """
        answer = Answer()
        messages = [*self.conversation.messages, {"role": "user", "content": question}]
        stream = self._client.stream(self._model, messages, self._options, answer)
        failure: str | None = None
        try:
            for piece in stream:
                # The model's text is data: it must not move the cursor or set the window's title.
                self._console.file.write(piece.translate(_CONTROLS))
                self._console.file.flush()
        except KeyboardInterrupt:
            failure = "Stopped."
        except ChatError as error:
            failure = str(error)
        finally:
            stream.close()  # closes the connection, which aborts the request
        self._console.print()
        if answer.text:
            self.conversation.add(question, answer.text)
            self._note(figures(answer))
            if extra := self._footnote(answer):
                self._note(extra)
        if failure:
            self._note(failure)
        return answer if answer.text else None

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def figures(answer: Answer) -> str:
    """One line: TTFT, decode speed, tokens, cached prompt tokens, E2E; what is not known is left out."""
    parts: list[str] = []
    if answer.ttft is not None:
        parts.append(f"TTFT {answer.ttft * 1000:.0f} ms")
    if answer.tokens_per_second is not None:
        parts.append(f"{answer.tokens_per_second:.1f} tok/s")
    if answer.completion_tokens is not None:
        parts.append(f"{answer.completion_tokens} tokens")
    if answer.prompt_tokens is not None:
        cached = f", {answer.cached_tokens} cached" if answer.cached_tokens is not None else ""
        parts.append(f"prompt {answer.prompt_tokens}{cached}")
    if answer.e2e is not None:
        parts.append(f"E2E {answer.e2e:.2f} s")
    if answer.finish_reason == "length":
        parts.append("cut at the token limit")
    return " · ".join(parts)
