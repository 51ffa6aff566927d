"""A model of transformers whose attention reaches kvsim's caches: what is known of it, and the hooks in it."""
import functools
import inspect
import threading
import weakref

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from . import attention, refusals
from .lane_slots import LayerRule
from .model_description import attention_modules, decoder_of, describe_model, output_weights
from ..writing.trace_error import TraceError
from .writer_thread import ELEMS

_current = threading.local()  # the cache whose forward call this thread is in
_models = weakref.WeakKeyDictionary()


class ServedCache:
    """What a cache is to the model's hooks; `about` describes the model. The decoder calls before() with the tokens and its other
    arguments, then attend() once in every layer, then after()."""

    def before(self, ids, keywords):
        raise NotImplementedError

    def attend(self, layer, query, key, value, dense):
        """What the layer's attention returns. query, key, value [1, heads, tokens, dim] are what the cache's update() returned;
        dense() attends them with the model's own implementation."""
        raise NotImplementedError

    def after(self):
        raise NotImplementedError


def running_model(model):
    """What is known of the model. From the first call on, its attention asks the cache of a call whether it is kvsim's; with
    any other cache, and with none, it computes as before."""
    known = _models.get(model)
    if known is None or not known.is_installed():
        known = _models[model] = RunningModel(model)
    return known


def _before(decoder, arguments, keywords):
    cache = keywords.get("past_key_values")
    _current.cache = cache if isinstance(cache, ServedCache) else None
    if _current.cache is not None:
        _current.cache.before(keywords.get("input_ids", arguments[0] if arguments else None), keywords)


def _after(decoder, arguments, keywords, output):
    cache, _current.cache = getattr(_current, "cache", None), None
    if cache is not None:
        cache.after()


def _register(kind):
    inner = {"sdpa": attention.sdpa, "eager": attention.eager}[kind]

    def attend(module, query, key, value, attention_mask, *rest, **keywords):
        def dense():
            return inner(module, query, key, value, attention_mask, *rest, **keywords)

        cache = getattr(_current, "cache", None)
        if cache is None:
            return dense()
        refusals.check_attention(cache.about, keywords)
        return cache.attend(module.layer_idx, attention.unscaled(module, query, keywords)[0], key, value, dense)

    name = f"kvsim_cache_{kind}"
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, AttentionMaskInterface()[kind])
    return name


class RunningModel:
    """about: its description (kvsim.writing.trace_header.Model). elem: the type of its tensors. context: most tokens that it
    reads. decoder, device, dtype."""

    def __init__(self, model):
        refusals.check_model(model)
        self._model = weakref.ref(model)
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
        self.decoder = decoder_of(model)
        first = next(model.parameters())
        self.device, self.dtype = first.device, first.dtype
        if self.dtype not in ELEMS:
            raise TraceError(f"computes in {self.dtype}; float32, float16 and bfloat16 are served", type(model).__name__)
        self.elem = ELEMS[self.dtype]
        self.context = model.config.get_text_config().max_position_embeddings
        self._configs = list({id(config): config for config in (model.config, self.decoder.config)}.values())
        before = [config._attn_implementation for config in self._configs]
        if "kvsim_traced" in str(before[-1]):
            raise TraceError("is being traced", type(model).__name__, "End the trace first: it sees a full cache.")
        kind = attention.kind_of(self.decoder)
        try:
            self._use(attention.register(kind))  # by which the description finds out how keys are rotated
            self.about, _ = describe_model(model)
        except BaseException:
            self._use_before(before)
            raise
        if self.about.values_in_keys:
            self._use_before(before)
            raise TraceError("has latent attention: its heads attend keys and values that are expanded from what is cached",
                             type(model).__name__, "kvsim.hf.trace records it; kvsim evaluate runs DeepSeek V2 and V3.")
        self._name = _register(kind)
        self._use(self._name)
        self._modules = attention_modules(self.decoder)
        self._hooks = [self.decoder.register_forward_pre_hook(_before, with_kwargs=True),
                       self.decoder.register_forward_hook(_after, with_kwargs=True)]

    def _use(self, name):
        for config in self._configs:
            config._attn_implementation = name

    def _use_before(self, names):
        for config, name in zip(self._configs, names):
            config._attn_implementation = name

    def is_installed(self):
        """Whether nobody has chosen another attention since."""
        if all(config._attn_implementation == self._name for config in self._configs):
            return True
        for hook in self._hooks:
            hook.remove()
        return False

    def last_logits(self, ids, cache):
        """Runs the model on ids [sequences, tokens]: the last token's logits [sequences, vocabulary]."""
        with torch.no_grad():
            return self._model()(input_ids=ids.to(self.device), past_key_values=cache, use_cache=True, **self._last).logits[:, -1]

    def rule_of(self, layer):
        """How a layer attends."""
        about, sinks = self.about, None
        if about.sinks is not None:
            here = slice(layer * about.n_q_heads, (layer + 1) * about.n_q_heads)
            sinks = torch.tensor(about.sinks[here], device=self.device).view(about.n_kv_heads, -1)
        return LayerRule(about.attn_scale, about.layer_window[layer], functools.partial(about.first_seen, layer),
                         about.logit_softcap, sinks)

    def output_weights(self):
        """Of every layer [query heads, value_dim, hidden], float32 on the processor."""
        return [output_weights(module, self.about.n_q_heads).float().cpu().contiguous() for module in self._modules]
