"""Built-in policies, written again in Python."""
import numpy as np

import kvsim


class MySnap(kvsim.ScorePolicy):
    """SnapKV: the last rows' attention, averaged over neighbours."""

    params = {"window": 32, "kernel": 5}
    rows = "window"

    def score(self, prompt):
        seen = prompt.rows[:, :, :len(prompt) - self.window].mean(axis=1, dtype=np.float64)
        sums = np.cumsum(np.pad(seen, ((0, 0), (self.kernel // 2 + 1, self.kernel // 2))), axis=1)
        smooth = (sums[:, self.kernel:] - sums[:, :-self.kernel]) / self.kernel
        return np.concatenate([smooth.mean(axis=0), np.zeros(self.window)])


class MyH2o(kvsim.ScorePolicy):
    """H2O without recent tokens: attention of all rows, and of every query while tokens are generated."""

    sums = True

    def score(self, prompt):
        return prompt.sums.mean(axis=0)

    def observe(self, step, scores):
        return scores + (step.attention / step.mass[:, None]).astype(np.float64).mean(axis=0)
