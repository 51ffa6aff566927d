"""Column statistics: the summed attention to each key of the first prompt from all of its queries, for traces that do
not store all queries."""
import torch

from .attention import probabilities, rows_per_block


class ColumnStatistics:
    """Sums and sums of squares [n_q_heads, tokens] of each layer, in float64 where the model runs."""

    def __init__(self, model):
        self._model = model
        self._sums = [[] for _ in range(model.n_layers)]
        self.tokens = 0
        self._open = True

    def counts(self, linear, prompt, new):
        """Whether the `new` tokens of a call are counted: they are as long as they continue one path and none was
        generated."""
        if new:
            self._open = self._open and linear and prompt
            self.tokens += new if self._open else 0
        return self._open and new > 0

    def add(self, layer, query, key, past):
        """Adds the attention of n counted tokens after `past` others: query [Hq, n, d], key [Hkv, keys, d] up to the
        last of them."""
        model, count = self._model, query.shape[1]
        first_key = past + count - key.shape[1]
        if not self._sums[layer]:
            self._sums[layer] = [torch.zeros(model.n_q_heads, 0, dtype=torch.float64, device=query.device)] * 2
        room = torch.zeros(model.n_q_heads, count, dtype=torch.float64, device=query.device)
        sums = [torch.cat([total, room], 1) for total in self._sums[layer]]
        key, step = key.float(), rows_per_block(query.shape[0], key.shape[1])
        for begin in range(0, count, step):
            end = min(begin + step, count)
            p = probabilities(query[:, begin:end], key, range(past + begin, past + end), first_key, model, layer)
            sums[0][:, first_key:] += p.sum(1, dtype=torch.float64)
            sums[1][:, first_key:] += p.square_().sum(1, dtype=torch.float64)
        self._sums[layer] = sums

    def store(self, writer):
        for layer, (total, squares) in enumerate(self._sums):
            writer.put_column_statistics(layer, *(t.float().cpu().numpy() for t in (total, squares)))
