"""The model `kvsim` of lm-eval-harness: transformers models whose caches hold what a policy keeps."""
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from .. import _core
from .continuations import Continuations


class HarnessModel(HFLM):
    """Takes the arguments of the harness's model `hf`, and

    policy, budget  as of kvsim.hf.Cache; default: the full cache
    question        a text: the policy decides before the last place where it begins in a prompt; default: at the prompt's end
    chunk           prompt tokens per forward call; default: all
    seed            of policies that draw
    """

    def __init__(self, pretrained, policy="full", budget=None, question=None, chunk=None, seed=0, batch_size=1, **arguments):
        if str(batch_size) != "1":
            _core.refuse(f"runs one prompt at a time, not {batch_size}", "batch_size", "Leave it out.")
        if budget is None and policy != "full":
            _core.refuse("has no budget", f"policy {policy}", "For instance budget=10%.")
        super().__init__(pretrained, batch_size=1, **arguments)
        if self.backend != "causal":
            _core.refuse("has an encoder", str(pretrained), "Decoders are served.")
        self._continuations = Continuations(self.model, self.tokenizer, policy, 1.0 if budget is None else budget, question=question,
                                            chunk=chunk, seed=seed)

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, override_bs=None):
        answers = []
        for text, context, continuation in tqdm(requests, disable=disable_tqdm or self.rank != 0, desc="Running loglikelihood requests"):
            room = self.max_length + 1 - len(continuation)
            said = self._continuations.logits(context[-room:], continuation).log_softmax(-1, dtype=self.softmax_dtype)
            chosen = said.gather(1, said.new_tensor(continuation, dtype=int)[:, None])
            answers.append((float(chosen.sum()), said.argmax(-1).tolist() == continuation))
            self.cache_hook.add_partial("loglikelihood", text, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        _core.refuse("has no prompt that a policy could cut: it is one long continuation", "the perplexity of a document",
                     "--model hf has the full cache's.")

    def _model_generate(self, context, max_length, stop, **options):
        cache = self._continuations.cache(context[0].tolist())
        return super()._model_generate(context, max_length, stop, past_key_values=cache, **options)
