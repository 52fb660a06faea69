"""Whatever happens around a request, its tokens are those it would get alone, and nothing of it is left behind."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine.paged_runner import VOCAB, Bench, alone, bench, request, vocabulary

from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.step_cost import StepCost
from firsttoken.types import GenerateRequest, Grammar

GRAMMARS = [
    Grammar(kind="regex", source="(ab|c)+d"),
    Grammar(kind="regex", source="a?"),
    Grammar(kind="regex", source="[a-o]*"),
    Grammar(kind="choice", source='["abc", "ab", "ba1"]'),
    Grammar(kind="lark", source='start: "(" start ")" | "1" | "12"'),
    Grammar(kind="regex", source="(a|b)(c|d)zz"),  # no id stands for z: it leads nowhere
]
COMPILER = GrammarCompiler(vocabulary)
PREFIXES = [[], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9], [7] * 12]


class Requests(RuleBasedStateMachine):
    """Random requests, aborts, stops and failing steps on engines from ample to far too small."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, GenerateRequest] = {}
        self.stopped: set[tuple[str, int]] = set()
        self.aborted: set[str] = set()
        self.failing = False
        self.steps = 0

    @initialize(
        num_blocks=st.sampled_from([6, 10, 64]),
        max_num_seqs=st.sampled_from([1, 3, 8]),
        max_num_batched_tokens=st.sampled_from([8, 11, 64]),
        enable_prefix_caching=st.booleans(),
        max_shared_tokens=st.sampled_from([None, None, 8]),
        max_step_ms=st.sampled_from([None, 3.0, 0.0]),
        min_chunk=st.sampled_from([1, 4, 16]),
    )
    def start(
        self,
        num_blocks: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_prefix_caching: bool,
        max_shared_tokens: int | None,
        max_step_ms: float | None,
        min_chunk: int,
    ) -> None:
        self.bench = bench(
            num_blocks=num_blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            max_shared_tokens=max_shared_tokens,
            max_step_ms=max_step_ms,
            step_cost=StepCost(fixed_ms=1.0, token_ms=0.2, pair_ms=0.01, context_ms=0.01),
            min_chunk=min_chunk,
            max_model_len=24,
            grammars=COMPILER,
        )

    @rule(
        prefix=st.sampled_from(PREFIXES),
        tail=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(-1, 1),
        cache_salt=st.sampled_from([None, None, "a", ""]),
        seed=st.integers(0, 7),
        max_tokens=st.sampled_from([0, 1, 2, 5, 20, None]),
        min_tokens=st.sampled_from([0, 0, 3]),
        stop_token_ids=st.sampled_from([(), (5,), (1, 2, 3)]),
        ignore_eos=st.booleans(),
        prompt_logprobs=st.sampled_from([None, None, 1]),
        grammar=st.sampled_from([None, None, None, *GRAMMARS]),
    )
    def add(
        self,
        prefix: list[int],
        tail: list[int],
        n: int,
        priority: int,
        cache_salt: str | None,
        seed: int,
        max_tokens: int | None,
        min_tokens: int,
        stop_token_ids: tuple[int, ...],
        ignore_eos: bool,
        prompt_logprobs: int | None,
        grammar: Grammar | None,
    ) -> None:
        asked = request(
            f"r{len(self.asked)}",
            prefix + tail,
            n=n,
            priority=priority,
            cache_salt=cache_salt,
            arrival=self.bench.clock.now,
            seed=seed,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            stop_token_ids=stop_token_ids,
            ignore_eos=ignore_eos,
            prompt_logprobs=prompt_logprobs,
            grammar=grammar,
        )
        self.asked[asked.request_id] = asked
        self.bench.engine.add(asked)

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.bench.step()

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), kind=st.sampled_from(["abort", "stop", "stop the first", "fail the next step"]))
    def disturb(self, data: st.DataObject, kind: str) -> None:
        if kind == "fail the next step":
            self.failing = True
            self.bench.runner.fail_steps[len(self.bench.runner.plans)] = "The step failed."
            return
        request_id = data.draw(st.sampled_from(sorted(self.asked)))
        if kind == "abort":
            self.aborted.add(request_id)
            self.bench.engine.abort(request_id)
            return
        index = 0 if kind == "stop the first" else data.draw(st.integers(0, self.asked[request_id].n - 1))
        self.stopped.add((request_id, index))
        self.bench.engine.stop(request_id, index)

    @invariant()
    def the_pool_is_consistent(self) -> None:
        if hasattr(self, "bench"):
            self.bench.engine.check()

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        # Alone, a token takes two steps at most, and a prompt one for each of its tokens.
        work = sum(asked.n for asked in self.asked.values()) * 2 * 24
        self.bench.run(limit=work * 4 + 2)
        for asked in self.asked.values():
            for index in range(asked.n):
                self._compare(asked, index)
        assert self.bench.gauge("num_requests_running") == 0
        assert self.bench.gauge("num_requests_waiting") == 0
        assert self.bench.gauge("kv_cache_usage_perc") == 0
        finished = self.bench.engine.stats().finished
        assert sum(finished.values()) == sum(asked.n for asked in self.asked.values())

    def _compare(self, asked: GenerateRequest, index: int) -> None:
        key = (asked.request_id, index)
        outputs = self.bench.outputs.get(key, [])
        ids = self.bench.ids(*key)
        expected, reason = alone(asked, index, self.bench.engine.info, COMPILER)
        ended = [output.finish_reason for output in outputs if output.finish_reason is not None]
        assert len(ended) <= 1, "finished twice"
        if ended and ended[0] != "error":
            assert ids == expected
            assert ended == [reason]
        else:
            assert ids == expected[: len(ids)]
            assert ended or key in self.stopped or asked.request_id in self.aborted, "never finished"
            assert not ended or self.failing
        if asked.sampling.prompt_logprobs is not None and (ids or ended == ["length"]):
            scored = outputs[0].prompt_logprobs
            assert (scored is None) == (index != 0)
            if scored is not None:
                assert [one and one.token_id for one in scored] == [None, *asked.prompt_token_ids[1:]]
            assert all(output.prompt_logprobs is None for output in outputs[1:])


Requests.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRequests = Requests.TestCase
