"""The pool of KV blocks: who holds which, what the prefix cache remembers, and what is evicted first."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from hashlib import sha256

from firsttoken.engine.sequence import Sequence

_ROOT = b"firsttoken prefix"


class BlockPool:
    """Reference counts, prefix hashes and eviction order of `num_blocks` blocks of `block_size` tokens.

    A block is in exactly one place: free (content worthless), cached (unreferenced, content found by its hash, evicted
    least recently used first), or used (in a sequence's table, or released while a queued step may still touch it).

    Steps are named by their ids, which only grow. A released block returns when `collected` names the last step
    that had a row of its sequence; until then it counts in `num_returning`.

    `max_shared_tokens` limits how many of a sequence's leading tokens may be shared: a dynamic RoPE rotates the keys
    past its trained length by the whole context, so that those blocks belong to one sequence alone. A longer prompt
    changes the keys before it too and shares nothing.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool = True,
        max_shared_tokens: int | None = None,
    ) -> None:
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._max_shared_tokens = num_blocks * block_size if max_shared_tokens is None else max_shared_tokens
        if not enable_prefix_caching:
            self._max_shared_tokens = 0
        self._free = list(range(num_blocks - 1, -1, -1))  # taken from the end
        self._cached: OrderedDict[int, None] = OrderedDict()  # unreferenced, oldest first
        self._holders = [0] * num_blocks  # sequence tables that list the block
        self._leaving = [0] * num_blocks  # releases that wait for a step
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}
        self._waiting: deque[tuple[int, list[int]]] = deque()  # (step id, blocks released), ids never fall
        self._collected = -1
        self.num_returning = 0  # held by no sequence, but by a queued step

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now, evicting cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def usage(self) -> float:
        """Share of the pool that sequences or queued steps hold, 0 to 1."""
        return 1 - self.num_free / self.num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match_prefix(self, seq: Sequence) -> list[int]:
        """The cached blocks of the sequence's longest known prefix, leaving it at least one token to compute.

        Takes nothing: `admit` does, before anything else is taken from the pool.
        """
        limit = min((len(seq.token_ids) - 1) // self.block_size, self._shared_blocks(seq))
        matched: list[int] = []
        for digest in self._hashes(seq, limit):
            block = self._by_hash.get(digest)
            if block is None:
                break
            matched.append(block)
        return matched

    def fits(self, num_tokens: int, matched: list[int], headroom: int, returning: bool = False) -> bool:
        """Whether `num_tokens` over a matched prefix can be had now with `headroom` blocks to spare.

        `returning` counts the blocks that queued steps hold as well.
        """
        idle = sum(not self._holders[block] and not self._leaving[block] for block in matched)
        available = self.num_free - idle
        if returning:
            available += self.num_returning - sum(self._is_returning(block) for block in matched)
        return self.blocks_for(num_tokens) - len(matched) + headroom <= available

    def admit(self, seq: Sequence, num_tokens: int, matched: list[int]) -> None:
        """Gives a sequence its matched blocks and new ones up to `num_tokens`. The caller asked `fits`."""
        assert not seq.block_ids
        for block in matched:
            if self._is_returning(block):
                self.num_returning -= 1
            self._cached.pop(block, None)
            self._holders[block] += 1
        seq.block_ids = matched + [self._take() for _ in range(self.blocks_for(num_tokens) - len(matched))]

    def grow(self, seq: Sequence) -> None:
        """Adds one block to a sequence's table. The caller saw `num_free`."""
        seq.block_ids.append(self._take())

    def commit(self, seq: Sequence, start: int, end: int) -> None:
        """Puts the blocks that a collected row over tokens [start, end) has filled into the prefix cache.

        The row must be of the sequence's present epoch and its tokens known on the host.
        """
        first = start // self.block_size
        last = min(end // self.block_size, self._shared_blocks(seq))
        if first >= last:
            return
        hashes = self._hashes(seq, last)
        for i in range(first, last):
            # Where two sequences computed the same content at once, the first block stays the known one.
            if hashes[i] not in self._by_hash:
                self._by_hash[hashes[i]] = seq.block_ids[i]
                self._hash_of[seq.block_ids[i]] = hashes[i]

    def release(self, seq: Sequence) -> None:
        """Takes all blocks from a sequence; they return once its last queued step is collected."""
        # A prefix is found from its start, so its end is to be evicted first.
        blocks = seq.block_ids[::-1]
        seq.block_ids = []
        for block in blocks:
            self._holders[block] -= 1
            self._leaving[block] += 1
            self.num_returning += self._is_returning(block)
        if seq.last_step <= self._collected:
            self._return(blocks)
            return
        at = len(self._waiting)
        while at and self._waiting[at - 1][0] > seq.last_step:
            at -= 1
        self._waiting.insert(at, (seq.last_step, blocks))

    def collected(self, step_id: int) -> None:
        """Says that this step and all before it are over."""
        self._collected = step_id
        while self._waiting and self._waiting[0][0] <= step_id:
            self._return(self._waiting.popleft()[1])

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Asserts every invariant, given all sequences that may hold blocks."""
        held: Counter[int] = Counter()
        for seq in sequences:
            assert len(set(seq.block_ids)) == len(seq.block_ids), "a table lists a block twice"
            assert len(seq.block_ids) >= self.blocks_for(seq.num_computed), "a computed token has no block"
            held.update(seq.block_ids)
        leaving = Counter(block for _, blocks in self._waiting for block in blocks)
        steps = [step for step, _ in self._waiting]
        assert steps == sorted(steps), "releases wait out of order"
        assert all(step > self._collected for step in steps), "a release waits for a collected step"
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        returning = 0
        for block in range(self.num_blocks):
            holders, digest = self._holders[block], self._hash_of[block]
            assert holders == held[block], f"block {block} counts {holders} holders, {held[block]} tables list it"
            assert self._leaving[block] == leaving[block], f"block {block} miscounts its releases"
            used = holders > 0 or leaving[block] > 0
            assert used + (block in free) + (block in self._cached) == 1, f"block {block} is not in one place"
            assert digest is None or self._by_hash.get(digest) == block, f"block {block} has a lost hash"
            assert digest is None or block not in free, f"free block {block} is findable"
            assert digest is not None or block not in self._cached, f"cached block {block} cannot be found"
            assert digest is not None or holders <= 1, f"block {block} is shared before its commit"
            returning += not holders and leaving[block] > 0
        assert len(self._by_hash) == sum(digest is not None for digest in self._hash_of), "a hash without its block"
        assert returning == self.num_returning, "returning blocks are miscounted"

    def _shared_blocks(self, seq: Sequence) -> int:
        """How many of the sequence's leading blocks others may use, and it theirs."""
        return self._max_shared_tokens // self.block_size if seq.num_prompt_tokens <= self._max_shared_tokens else 0

    def _is_returning(self, block: int) -> bool:
        return not self._holders[block] and self._leaving[block] > 0

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            digest = self._hash_of[block]
            assert digest is not None
            del self._by_hash[digest]
            self._hash_of[block] = None
        self._holders[block] = 1
        return block

    def _return(self, blocks: list[int]) -> None:
        for block in blocks:
            self._leaving[block] -= 1
            if self._holders[block] or self._leaving[block]:
                continue
            self.num_returning -= 1
            if self._hash_of[block] is None:
                self._free.append(block)
            else:
                self._cached[block] = None

    def _hashes(self, seq: Sequence, count: int) -> list[bytes]:
        """Digests of the first `count` blocks, each over its parent's digest and its tokens; computed once."""
        known = seq.block_hashes
        if len(known) < count:
            parent = known[-1] if known else _root(seq.request.cache_salt)
            start = len(known) * self.block_size
            tokens = memoryview(array("I", seq.token_ids[start : count * self.block_size])).cast("B")
            width = self.block_size * array("I").itemsize
            for at in range(0, len(tokens), width):
                parent = sha256(parent + tokens[at : at + width]).digest()
                known.append(parent)
        return known[:count] if len(known) > count else known


def _root(salt: str | None) -> bytes:
    """The parent of first blocks: one per salt, and one for none."""
    return sha256(_ROOT if salt is None else _ROOT + b" with " + salt.encode("utf-8", "surrogatepass")).digest()
