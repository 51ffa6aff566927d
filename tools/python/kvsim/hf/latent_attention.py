"""Latent attention (DeepSeek V2) as it is cached: one key for all heads, the latent and behind it the part that rotates, of which the
latent is the value. What a head multiplies its own keys by is turned into what it multiplies the latent by."""
import torch


def is_latent(module):
    return hasattr(module, "kv_a_layernorm") and hasattr(module, "kv_b_proj")


class LatentAttention:
    """Keeps the latents of a forward call, from its modules' norms of them. `swapped`: the model leaves the halves of pairs that
    rotate apart, and its checkpoint has them together, as traces then do."""

    def __init__(self, modules, swapped):
        self._latents, self._swapped = {}, swapped
        self.hooks = [module.kv_a_layernorm.register_forward_hook(
            lambda _, given, out, module=module: self._latents.__setitem__(module, out)) for module in modules]

    @staticmethod
    def shapes(module):
        """(heads, dimension) of the queries, keys and values that the model itself attends."""
        heads, dim = module.num_heads, module.qk_nope_head_dim + module.qk_rope_head_dim
        return [(heads, dim), (heads, dim), (heads, module.v_head_dim)]

    def _rotated(self, module, rows):
        rows = rows[..., module.qk_nope_head_dim:]
        return rows.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2) if self._swapped else rows

    def queries(self, module, rows):
        """[heads, n, rank + rotated] of the model's [heads, n, dim]."""
        plain = rows[..., :module.qk_nope_head_dim]
        return torch.cat([torch.einsum("hnp,hpr->hnr", plain, _parts(module)[0]), self._rotated(module, rows)], -1)

    def keys(self, module, rows):
        """[1, n, rank + rotated] of the model's last keys [heads, n, dim], which are of the present call."""
        latents = self._latents[module].reshape(1, -1, module.kv_lora_rank)
        return torch.cat([latents[:, -rows.shape[1]:], self._rotated(module, rows[:1])], -1)


def _parts(module):
    """What expands a latent to the heads' keys [heads, plain, rank] and to their values [heads, value, rank]."""
    weight = module.kv_b_proj.weight.detach().view(module.num_heads, -1, module.kv_lora_rank)
    return weight.split([module.qk_nope_head_dim, module.v_head_dim], 1)


def output_projection(module, weight):
    """What the heads' attended latents are multiplied by [heads, rank, hidden], of what their values are [heads, value, hidden]."""
    return torch.einsum("hvr,hvd->hrd", _parts(module)[1].float(), weight.float())
