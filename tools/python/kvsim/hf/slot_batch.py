"""Slots of one layer of several caches, which attend together."""
import torch

from .lane_slots import ROOM, attention_of, hidden_slots


class SlotBatch:
    """The LaneSlots of a layer of several caches in one buffer of each tensor, [caches, KV heads, capacity, ..]: what each holds fills
    the first of its slots. Every LaneSlots is moved there, and goes on working by itself."""

    def __init__(self, slots):
        self._slots = slots
        self._heads = len(slots[0].counts)
        self._move(ROOM)

    def _move(self, room):
        self._capacity = room + max(count for of in self._slots for count in of.counts)
        shape = len(self._slots), self._heads * self._capacity
        self._buffers = [torch.empty((*shape, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
                         for tensor in (self._slots[0].keys, self._slots[0].values, self._slots[0].positions)]
        for index, of in enumerate(self._slots):
            of.move_to([buffer[index] for buffer in self._buffers], [self._capacity] * self._heads)
            of.clear_room()

    def make_room(self, new):
        """So many tokens can join every head of every cache afterwards."""
        if not all(of.has_room(new) for of in self._slots):
            self._move(new + ROOM)

    def write(self, which, rows, keys, values, position):
        """Tokens join some caches, which LaneSlots.take() or .extend() has given rows: keys [caches, KV heads, tokens, head_dim], from a
        position on."""
        count, heads, new = keys.shape[:3]
        rows = torch.tensor([index * heads * self._capacity + row for index, of in zip(which, rows) for row in of]).to(keys.device)
        positions = torch.arange(position, position + new, device=keys.device).repeat(count * heads)
        for buffer, of in zip(self._buffers, (keys.flatten(0, 2), values.flatten(0, 2), positions)):
            buffer.flatten(0, 1)[rows] = of

    def attend(self, which, query, position, rule):
        """Attention of the tokens that joined last in some caches: query [caches, KV heads, group, tokens, head_dim], position: of the
        first of them. Returns outputs [.., tokens, value_dim] and weights float32 [.., tokens, slots], 0 behind a head's slots."""
        counts = torch.tensor([self._slots[index].counts for index in which])
        longest = int(counts.max())
        keys, values, positions = (self._of(buffer, which)[:, :, :longest] for buffer in self._buffers)
        hidden = (torch.arange(longest) >= counts[..., None]).to(query.device)[:, :, None]
        unseen = hidden_slots(positions, position, query.shape[3], rule)
        return attention_of(query, keys, values, rule, rule.sinks, hidden if unseen is None else hidden | unseen)

    def _of(self, buffer, which):
        some = buffer if len(which) == len(self._slots) else buffer[torch.tensor(which).to(buffer.device)]
        return some.view(len(which), self._heads, self._capacity, *buffer.shape[2:])
