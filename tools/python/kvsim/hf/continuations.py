"""What a model of transformers says after prompts, through the caches of one policy."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import _core
from .._commands import Budget, Policy
from .cache import Cache, Prompt
from .token_text import TokenText


class Continuations:
    """Prompts are read one after another; one that follows itself is read once, and ranked once.

    question: a text. The policy decides before the last place where it begins in a prompt; what begins there is read through what the
    cache then holds. None: the policy knows the whole prompt, whose last token is read again, as kvsim evaluate does.
    policy, budget, chunk, seed, threads: as of Cache and Prompt.
    """

    def __init__(self, model: torch.nn.Module, tokenizer: Any, policy: Policy, budget: Budget, *, question: str | None = None,
                 chunk: int | None = None, seed: int = 0, threads: int = 0):
        self._model, self._text, self._chunk = model, TokenText(tokenizer), chunk
        self._policy, self._budget, self._question = policy, budget, question
        self._options = {"seed": seed, "threads": threads}
        self._prompt = self._cache = None

    def cache(self, ids: Sequence[int]) -> Cache:
        """A cache that waits for the rest of a prompt: for what follows the cut, or for its last token."""
        before = self._tokens_before(ids)
        if self._prompt is None or self._prompt.ids != ids[:before]:
            self._cache = None  # its memory goes before there is another
            self._prompt = Prompt(self._model, ids[:before], chunk=self._chunk, tokenizer=self._text)
        if self._cache is None or self._cache.streams:
            self._cache = self._prompt.cache(self._policy, self._budget, **self._options)
        else:
            self._cache.rewind()
        if before == len(ids):
            self._cache.ask_again()
        return self._cache

    @torch.no_grad()
    def logits(self, ids: Sequence[int], following: Sequence[int]) -> torch.Tensor:
        """[tokens that follow a prompt, vocabulary]: what the model expects before each of them."""
        cache = self.cache(ids)
        rows = [cache.feed(ids[cache.length:])[None]]
        if len(following) > 1:
            rest = torch.tensor([following[:-1]], device=rows[0].device)
            rows.append(self._model(input_ids=rest, past_key_values=cache, use_cache=True).logits[0])
        return torch.cat(rows)

    def _tokens_before(self, ids):
        """How many tokens of a prompt the policy knows."""
        if self._question is None:
            return len(ids)
        spelled = [self._text.bytes(token) for token in ids]
        text = b"".join(spelled)
        place = text.rfind(self._question.encode())
        end = before = 0
        for token in spelled:
            end += len(token)
            if end > place:
                break
            before += 1
        if place < 0 or not before:
            _core.refuse("is in no part of this prompt" if place < 0 else "begins this prompt: nothing is left to decide about",
                         f"question {self._question!r}", f"The prompt begins {text[:60].decode(errors='replace')!r}.")
        return before
