"""The reference's whole distributions, in a file: two models need not be in memory at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from firsttoken.errors import ConfigError


class Reference:
    """Log-probabilities [rows, ids] in float32, written by one process and read by another."""

    def __init__(self, path: Path, rows: int, ids: int, *, create: bool) -> None:
        """Raises ConfigError where the disk lacks the room."""
        if create:
            needed, free = 4 * rows * ids, shutil.disk_usage(path.parent).free
            if needed > free:
                raise ConfigError(
                    f"The reference's distributions take {needed / 1e9:.1f} GB, and {path.parent} has "
                    f"{free / 1e9:.1f} GB free; point TMPDIR elsewhere or lower --tokens."
                )
        self.rows, self.ids = rows, ids
        self._array = np.memmap(path, dtype=np.float32, mode="w+" if create else "r", shape=(rows, ids))

    def write(self, row: int, logprobs: Tensor) -> None:
        """Keeps logprobs [n, ids] as rows from `row` on."""
        self._array[row : row + len(logprobs)] = logprobs.cpu().numpy()

    def read(self, row: int, count: int, device: torch.device) -> Tensor:
        """[count, ids]."""
        return torch.from_numpy(np.array(self._array[row : row + count])).to(device)
