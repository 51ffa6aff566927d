"""Keys and values of one layer as a cache holds them: of every KV head its slots and no others."""
from typing import Callable, NamedTuple

import torch

from .attention import softmax_beside

ROOM = 64  # slots that are added at once where tokens are only appended


class LayerRule(NamedTuple):
    """How a layer attends: window: how many positions a query sees at most, -1: all; first_seen(positions): the first that queries
    there see; cap of logits, 0: none; sinks [KV heads, group], or None."""
    scale: float
    window: int
    first_seen: Callable
    cap: float
    sinks: torch.Tensor

    def sinks_of(self, head):
        return None if self.sinks is None else self.sinks[head]


class LaneSlots:
    """The slots of a layer's KV heads, which may be of different number, one head's behind the other's in one buffer.

    keys [slots of all heads, head_dim] and values [.., value_dim] have `room` free slots behind those of each head. Where a
    layer attends within a window, `positions` has the text position in each slot."""

    def __init__(self, keys, values, held, room):
        """keys [KV heads, tokens, head_dim], values [.., value_dim]; held: of each head the tokens that its slots begin with."""
        self.counts = [len(tokens) for tokens in held]
        self._layout([count + room for count in self.counts])
        self.keys, self.values = self._buffer(keys), self._buffer(values)
        self.positions = torch.empty(self._size, dtype=torch.long, device=keys.device)
        for head, tokens in enumerate(held):
            index, here = torch.as_tensor(tokens, dtype=torch.long).to(keys.device), self._of(head)
            for to, tensor in (self.keys, keys), (self.values, values):
                torch.index_select(tensor[head], 0, index, out=to[here])
            self.positions[here] = index

    @property
    def total(self):
        """Slots that are occupied."""
        return sum(self.counts)

    @property
    def nbytes(self):
        """Bytes of keys and values, the free slots included."""
        return self.keys.untyped_storage().nbytes() + self.values.untyped_storage().nbytes()

    def _layout(self, capacities):
        self._capacities = capacities
        self._first = [sum(capacities[:head]) for head in range(len(capacities))]
        self._size = sum(capacities)

    def _buffer(self, like):
        return torch.empty((self._size, *like.shape[2:]), dtype=like.dtype, device=like.device)

    def _of(self, head):
        return slice(self._first[head], self._first[head] + self.counts[head])

    def has_room(self, new):
        """Whether so many tokens can join every head."""
        return all(count + new <= capacity for count, capacity in zip(self.counts, self._capacities))

    def _grow(self, room):
        capacities = [count + room for count in self.counts]
        self.move_to([torch.empty((sum(capacities), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
                      for tensor in (self.keys, self.values, self.positions)], capacities)

    def move_to(self, buffers, capacities):
        """From now on the slots are in these buffers of keys, values and positions, which have so many for each head."""
        before = [self._of(head) for head in range(len(self.counts))]
        self._layout(capacities)
        for head, was in enumerate(before):
            for to, tensor in zip(buffers, (self.keys, self.values, self.positions)):
                to[self._of(head)] = tensor[was]
        self.keys, self.values, self.positions = buffers

    def clear_room(self):
        """Values behind the slots become zeros: what is there gets the weight 0, which times any number must be 0. Scores of keys and
        positions there are hidden whatever they are."""
        for head, first in enumerate(self._first):
            self.values[first + self.counts[head]:first + self._capacities[head]] = 0

    def join(self, position, key, value, slots, victims):
        """A token joins every head: key [KV heads, head_dim], value [.., value_dim]; slots, victims: as of take()."""
        if any(not leaving and count == capacity
               for leaving, count, capacity in zip(victims, self.counts, self._capacities)):
            self._grow(ROOM)
        self._write(self.take(slots, victims), key, value, position)

    def take(self, slots, victims):
        """Makes place for a token in every head: of each the slot that the token takes, and the slots that leave, of which it takes
        the first; the others close up. Returns the token's rows of the buffers."""
        for head, leaving in enumerate(victims):
            if len(leaving) > 1:
                self._close_up(head, leaving[1:])
            elif not leaving:
                self.counts[head] += 1
        return [first + slot for first, slot in zip(self._first, slots)]

    def _write(self, rows, keys, values, positions):
        rows = torch.tensor(rows).to(self.keys.device)
        self.keys[rows], self.values[rows], self.positions[rows] = keys, values, positions

    def _close_up(self, head, leaving):
        here = self._of(head)
        stays = torch.ones(self.counts[head], dtype=torch.bool)
        stays[leaving] = False
        index = stays.nonzero().ravel().to(self.keys.device)
        self.counts[head] = len(index)
        left = slice(here.start, here.start + len(index))
        for tensor in (self.keys, self.values, self.positions):
            tensor[left] = tensor[here][index]

    def append(self, position, keys, values):
        """Tokens join every head behind the last slot: keys [KV heads, tokens, head_dim], from a position on."""
        heads, new = keys.shape[:2]
        if not self.has_room(new):
            self._grow(new + ROOM)
        self._write(self.extend(new), keys.flatten(0, 1), values.flatten(0, 1),
                    torch.arange(position, position + new, device=keys.device).repeat(heads))

    def extend(self, new):
        """Makes place for tokens behind every head's last slot. Returns their rows of the buffers, one head's behind the other's."""
        rows = [first + count + i for first, count in zip(self._first, self.counts) for i in range(new)]
        self.counts = [count + new for count in self.counts]
        return rows

    def replace(self, head, slot, key, value):
        self.keys[self._first[head] + slot], self.values[self._first[head] + slot] = key, value

    def attend(self, query, position, rule):
        """Attention of the tokens that joined last, in the last slots where they are several.

        query [KV heads, group, tokens, head_dim]; position: of the first of them. Returns outputs
        [KV heads, group, tokens, value_dim], and of each head weights float32 [group, tokens, slots]."""
        heads = range(len(self.counts))
        if len(set(self.counts)) == 1 and len(set(self._capacities)) == 1:
            def view(tensor):
                return tensor.view(len(self.counts), self._capacities[0], *tensor.shape[1:])[:, :self.counts[0]]
            out, weights = attention_of(query, view(self.keys), view(self.values), rule, rule.sinks,
                                      hidden_slots(view(self.positions), position, query.shape[2], rule))
            return out, list(weights)
        parts = [attention_of(query[head], self.keys[self._of(head)], self.values[self._of(head)], rule, rule.sinks_of(head),
                            hidden_slots(self.positions[self._of(head)], position, query.shape[2], rule)) for head in heads]
        return torch.stack([out for out, _ in parts]), [weights for _, weights in parts]

    def attend_beside(self, head, query, key, value, position, rule):
        """Attention of one head's query [group, 1, head_dim] over its slots and a token that has none."""
        here = self._of(head)
        hidden = hidden_slots(torch.cat([self.positions[here], self.positions.new_tensor([position])]), position, 1, rule)
        return attention_of(query, torch.cat([self.keys[here], key[None]]), torch.cat([self.values[here], value[None]]), rule,
                          rule.sinks_of(head), hidden)[0]


def hidden_slots(positions, first, count, rule):
    """Which slots the queries do not see, [.., tokens, slots]; None: they see all."""
    if count == 1 and rule.window < 0:
        return None
    query = torch.arange(first, first + count, device=positions.device)[:, None]
    hidden = positions[..., None, :] > query
    return hidden if rule.window < 0 else hidden | (positions[..., None, :] < rule.first_seen(query))


def attention_of(query, keys, values, rule, sinks, hidden):
    """query [.., group, tokens, d], keys and values [.., slots, d], sinks [.., group] or None, hidden [.., tokens, slots]: (outputs,
    weights)."""
    *lead, group, count, dim = query.shape
    scores = (query.reshape(*lead, group * count, dim) @ keys.transpose(-1, -2)).float() * rule.scale
    if rule.cap:
        scores = torch.tanh(scores / rule.cap) * rule.cap
    scores = scores.view(*lead, group, count, keys.shape[-2])
    if hidden is not None:
        scores = scores.masked_fill(hidden.unsqueeze(-3), float("-inf"))
    weights = softmax_beside(scores, sinks)
    out = weights.to(values.dtype).view(*lead, group * count, -1) @ values
    return out.view(*lead, group, count, values.shape[-1]), weights
