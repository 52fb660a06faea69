"""An engine without a model, deterministic and free of torch. Run as a module it is the engine process of the tests."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from firsttoken.config import EngineConfig
from firsttoken.engine.channel import Channel
from firsttoken.engine.process import EngineLoop, Load, Progress, main
from firsttoken.errors import InvalidRequest, ModelError, QueueFull
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import EngineStats

POISON = 666  # a prompt that begins with it makes the next step raise
INVALID = 400  # a prompt that begins with it is refused
BUG = 500  # a prompt that begins with it meets a bug when it is added


def info(**changes: object) -> EngineInfo:
    values: dict[str, object] = {
        "model": "fake",
        "architecture": "FakeForCausalLM",
        "device": "cpu",
        "device_name": "a test",
        "dtype": "float32",
        "weights": "none",
        "attention": "none",
        "max_model_len": 4096,
        "vocab_size": 1024,
        "token_id_limit": 1000,
        "bos_token_id": None,
        "eos_token_ids": (2,),
        "default_sampling": {},
        "block_size": 16,
        "num_blocks": 256,
        "max_num_seqs": 8,
        "kv_bytes_per_token": 1,
        "weight_bytes": 1,
        "phases": {"weights": 0.0},
    }
    return EngineInfo(**(values | changes))  # type: ignore[arg-type]  # each value has its field's type


@dataclass
class _Sequence:
    request: GenerateRequest
    index: int
    given: int = 0


class FakeEngine:
    """Every step gives each sequence one token: the last of the prompt, plus its index, plus how many came before."""

    def __init__(self, *, max_queue: int = 1024, step_seconds: float = 0.0) -> None:
        self.info = info()
        self.max_queue = max_queue
        self.step_seconds = step_seconds
        self.sequences: list[_Sequence] = []
        self.aborted: list[str] = []
        self.stopped: list[tuple[str, int]] = []
        self.draining = False
        self.steps = 0
        self.to_improve = 0
        self.preparing: dict[str, Future[None]] = {}  # by request id: what is waited for before it is added
        self.may_step = threading.Event()
        self.may_step.set()

    @property
    def has_work(self) -> bool:
        return bool(self.sequences)

    @property
    def queued(self) -> None:
        return None

    def prepare(self, request: GenerateRequest) -> Future[None] | None:
        prepared = self.preparing.get(request.request_id)
        return None if prepared is None or prepared.done() else prepared

    def add(self, request: GenerateRequest) -> None:
        if (prepared := self.preparing.get(request.request_id)) is not None:
            prepared.result(0)
        if request.prompt_token_ids[0] == INVALID:
            raise InvalidRequest("This prompt is not valid.", param="prompt", code="bad_prompt")
        if request.prompt_token_ids[0] == BUG:
            raise KeyError("a bug")
        if len(self.sequences) + request.n > self.max_queue:
            raise QueueFull("The queue is full; try again in 3 seconds.", retry_after=3.0)
        self.sequences += [_Sequence(request, i) for i in range(request.n)]

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self.sequences = [s for s in self.sequences if s.request.request_id != request_id]

    def stop(self, request_id: str, index: int) -> None:
        self.stopped.append((request_id, index))
        self.sequences = [s for s in self.sequences if (s.request.request_id, s.index) != (request_id, index)]

    def drain(self) -> None:
        self.draining = True

    def improve(self) -> bool:
        assert not self.has_work
        self.to_improve -= 1
        return self.to_improve > 0

    def step(self) -> list[SequenceOutput]:
        self.may_step.wait()
        time.sleep(self.step_seconds)
        self.steps += 1
        outputs = []
        for s in tuple(self.sequences):
            if s.request.prompt_token_ids[0] == POISON:
                raise RuntimeError("poisoned")
            token = s.request.prompt_token_ids[-1] + s.index + s.given
            s.given += 1
            last = s.given == s.request.sampling.max_tokens
            if last:
                self.sequences.remove(s)
            outputs.append(
                SequenceOutput(
                    request_id=s.request.request_id,
                    index=s.index,
                    token_ids=[token],
                    finish_reason="length" if last else None,
                )
            )
        return outputs

    def stats(self) -> EngineStats:
        return EngineStats(gauges={"num_requests_running": float(len(self.sequences))}, counters={"steps": self.steps})


class EngineThread:
    """The real loop and channel over a fake engine, in a thread of the test's process."""

    def __init__(self, path: Path, *, max_queue: int = 1024) -> None:
        self.path = path
        self.engine = FakeEngine(max_queue=max_queue, step_seconds=0.002)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        self._channel = Channel(listener)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        loop = EngineLoop(self.engine, self._channel, self.engine.info)
        while not self._stop.is_set():
            loop.turn(0.01)
        self._channel.close()

    def close(self) -> None:
        self._stop.set()
        self.engine.may_step.set()
        self._thread.join()


def load(config: EngineConfig, on_progress: Progress) -> FakeEngine:
    """The model's name chooses the start: `slow` takes a minute, `held FILE` lasts while that file is there, `broken`
    and `crash` fail, others start at once."""
    on_progress("weights", 0.5)
    if config.model == "slow":
        for i in range(600):
            on_progress("weights", i / 600)
            time.sleep(0.1)
    name, _, holder = config.model.partition(" ")
    while name == "held" and Path(holder).exists():
        time.sleep(0.01)
    if config.model == "broken":
        raise ModelError("The model is broken; choose another.")
    if config.model == "crash":
        os._exit(9)
    return FakeEngine(max_queue=config.max_queue, step_seconds=0.02)


def find_load() -> Load:
    return load


if __name__ == "__main__":
    sys.exit(main(find_load))
