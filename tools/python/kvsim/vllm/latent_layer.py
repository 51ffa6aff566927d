"""Latent attention of vLLM (DeepSeek V2) as it is cached: one key for all heads, the latent and behind it the part that rotates, of which
the latent is the value."""
import torch


def is_latent(layer):
    return hasattr(layer, "kv_lora_rank")


def absorbed(layer, query):
    """Queries [n, heads, rank + rotated] of the layer's own [n, heads, plain + rotated]: what a head multiplies its keys by is turned into
    what it multiplies latents by."""
    plain, rotated = query.split([layer.qk_nope_head_dim, layer.qk_rope_head_dim], -1)
    return torch.cat([torch.bmm(plain.transpose(0, 1), layer.W_UK_T).transpose(0, 1), rotated], -1)


def latent_keys(latents, rotated):
    """Keys [n, 1, rank + rotated]."""
    return torch.cat([latents, rotated.flatten(1)], -1)[:, None]
