"""Keys and values as vLLM's cache holds them, whatever the layout of its blocks: where an element lies is found by writing numbered
elements into an empty block."""
import torch

from .latent_layer import is_latent

DIGIT = 128  # whole numbers that every type of cache tells apart


class CacheReader:
    """Of one layer; `cache` is its tensor, blocks first."""

    def __init__(self, layer, cache):
        self.problem = None
        dtype = cache.dtype
        if not hasattr(layer.impl, "do_kv_cache_update"):
            self.problem = f"attention of {layer.attn_backend.get_name()} writes its cache by itself, in a layout that is not known"
        elif dtype not in (torch.float32, torch.float16, torch.bfloat16):
            self.problem = f"the cache is of type {dtype}"
        if self.problem:
            return
        # Of latent attention keys hold values.
        heads, self._sizes = layer.num_kv_heads, (layer.head_size, 0 if is_latent(layer) else layer.head_size_v)
        elements = cache[0].numel()
        self.block = elements // (heads * sum(self._sizes))
        self._heads = heads
        keys, values = (self.block * heads * size for size in self._sizes)
        places = torch.zeros(elements, dtype=torch.int64)
        scale = 1
        while scale < keys + values + 1:  # digit after digit; 0 is what nothing was written to
            digits = (torch.arange(1, keys + values + 1) // scale % DIGIT).to(dtype).to(cache.device)
            empty = torch.empty_like(cache[:1]).zero_()
            slots = torch.arange(self.block, device=cache.device)
            if is_latent(layer):
                latents, rotated = digits[:keys].view(self.block, -1).split([layer.kv_lora_rank, layer.qk_rope_head_dim], -1)
                layer.impl.do_kv_cache_update(latents, rotated[:, None], empty, slots, layer.kv_cache_dtype, layer._k_scale)
            else:
                layer.impl.do_kv_cache_update(
                    layer, digits[:keys].view(self.block, heads, -1), digits[keys:].view(self.block, heads, -1), empty, slots)
            places += empty.reshape(-1).to("cpu", torch.float32).round().to(torch.int64) * scale
            scale *= DIGIT
        order = places.argsort()[(places == 0).sum():]
        if not torch.equal(places[order], torch.arange(1, keys + values + 1)):
            self.problem = "the cache does not hold keys and values as they were written"
            return
        self._places = order[:keys].to(cache.device), order[keys:].to(cache.device)

    def read(self, cache, blocks, first, end):
        """(keys, values) of positions [first, end): each [heads, end - first, size]; of latent attention keys alone. `blocks`: those of the
        request, in order."""
        wanted = blocks[first // self.block:-(-end // self.block)].long()
        begin = first - first // self.block * self.block
        rows = cache[wanted].reshape(len(wanted), -1)
        return [rows[:, places].view(len(wanted) * self.block, self._heads, size)[begin:begin + end - first].transpose(0, 1)
                for places, size in zip(self._places, self._sizes) if size]
