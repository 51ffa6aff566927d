"""Models that the tests of kvsim.hf run, and what is computed of them without it."""
import contextlib
import pathlib
import sys

import torch
import transformers
from transformers import AttentionInterface

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "traces" / "sample" / "model"
sys.path += [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "python"), str(ROOT / "tests" / "support")]

from try_architectures import BEGIN, END, FAMILIES, README, answering, tiny  # noqa: E402, F401 - for the tests
from wide_weights import randomise  # noqa: E402
from kvsim.hf.model_description import decoder_of  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

_seen = None  # [layer][KV heads, queries, keys]: which keys each head may see


def sample():
    """The shipped model in float32, and its tokenizer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(SAMPLE, dtype=torch.float32).eval()
    return model, transformers.PreTrainedTokenizerFast(tokenizer_file=str(SAMPLE / "tokenizer.json"))


def wide(family, **changes):
    """A tiny model whose random weights are wide enough for attention to have shape."""
    model = tiny(family, **changes)
    randomise(model, 5)
    return model


def _attend_seen(module, query, key, value, attention_mask, scaling=None, softcap=None, s_aux=None, **options):
    """Attention over the keys that `_seen` names, instead of transformers' own choice of them."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~_seen[module.layer_idx].repeat_interleave(group, 0), float("-inf"))
    if s_aux is not None:
        scores = torch.cat([scores, s_aux[None, :, None, None].expand(*scores.shape[:-1], 1)], -1)
    return (scores.softmax(-1)[..., :key.shape[2]] @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("seen", _attend_seen)


@contextlib.contextmanager
def _attention(model, name):
    configs = {id(config): config for config in (model.config, decoder_of(model).config)}.values()
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, was in zip(configs, before):
            config._attn_implementation = was


def causal(model, about, n):
    """[layers][KV heads, n, n]: what a full cache lets every query see."""
    query, key = torch.arange(n)[:, None], torch.arange(n)
    heads = model.config.num_key_value_heads
    return [((key <= query) & ((window < 0) | (query // window == key // window if about.chunked else query - key < window)))
            .expand(heads, n, n).clone() for window in about.layer_window]


def masked_logits(model, ids, masks):
    """Logits [tokens, vocabulary] of one pass without a cache, whose heads see what the masks let them."""
    global _seen
    _seen = masks
    with torch.no_grad(), _attention(model, "seen"):
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
