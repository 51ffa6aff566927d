"""Keys and values read back from a cache of vLLM, whatever its layout (kvsim.vllm.cache_reader)."""
import itertools
import types
import unittest

import torch

from kvsim.vllm.cache_reader import CacheReader

HEADS, DIM, V_DIM, BLOCK, BLOCKS = 3, 6, 4, 5, 7


class Backend:
    """Writes keys transposed, and values behind them, as a kernel might."""

    def do_kv_cache_update(self, layer, key, value, cache, slots):
        for row, slot in enumerate(slots.tolist()):
            block = cache[slot // BLOCK].view(HEADS, -1)
            block[:, :DIM * BLOCK].view(HEADS, DIM, BLOCK)[:, :, slot % BLOCK] = key[row]
            block[:, DIM * BLOCK:].view(HEADS, BLOCK, V_DIM)[:, slot % BLOCK] = value[row]


def layer(impl):
    return types.SimpleNamespace(impl=impl, num_kv_heads=HEADS, head_size=DIM, head_size_v=V_DIM,
                                 attn_backend=types.SimpleNamespace(get_name=lambda: "TEST"))


class Reading(unittest.TestCase):
    def test_rows_come_back(self):
        table = torch.tensor([4, 2, 6], dtype=torch.int32)
        slots = torch.tensor([int(table[i // BLOCK]) * BLOCK + i % BLOCK for i in range(13)])
        for dtype, (first, end) in itertools.product((torch.float32, torch.bfloat16), ((0, 5), (3, 4), (4, 12), (0, 13))):
            cache = torch.zeros(BLOCKS, HEADS, BLOCK, DIM + V_DIM, dtype=dtype)
            keys, values = torch.randn(13, HEADS, DIM, dtype=dtype), torch.randn(13, HEADS, V_DIM, dtype=dtype)
            Backend().do_kv_cache_update(None, keys, values, cache, slots)
            reader = CacheReader(layer(Backend()), cache)
            self.assertEqual((reader.problem, reader.block), (None, BLOCK))
            for found, written in zip(reader.read(cache, table, first, end), (keys, values)):
                self.assertTrue(torch.equal(found, written[first:end].transpose(0, 1)), (dtype, first, end))

    def test_latent_keys_come_back(self):
        class Latents:
            def do_kv_cache_update(self, latents, rotated, cache, slots, kind, scale):
                cache.view(-1, DIM + V_DIM)[slots] = torch.cat([rotated[:, 0], latents], -1)

        latent = types.SimpleNamespace(impl=Latents(), num_kv_heads=1, head_size=DIM + V_DIM, kv_lora_rank=DIM, qk_rope_head_dim=V_DIM,
                                       kv_cache_dtype="auto", _k_scale=None)
        cache, rows = torch.zeros(BLOCKS, BLOCK, DIM + V_DIM), torch.randn(13, DIM + V_DIM)
        table = torch.tensor([4, 2, 6])
        for at, row in enumerate(rows):
            Latents().do_kv_cache_update(row[None, :DIM], row[None, None, DIM:], cache, table[at // BLOCK] * BLOCK + at % BLOCK, None, None)
        keys, = CacheReader(latent, cache).read(cache, table, 3, 12)
        self.assertTrue(torch.equal(keys, rows[None, 3:12]))

    def test_what_cannot_be_read_is_said(self):
        class Rounding(Backend):
            def do_kv_cache_update(self, layer, key, value, cache, slots):
                super().do_kv_cache_update(layer, key // 2 * 2, value, cache, slots)

        cache = torch.zeros(BLOCKS, HEADS, BLOCK, DIM + V_DIM)
        self.assertIn("writes its cache by itself", CacheReader(layer(object()), cache).problem)
        self.assertIn("uint8", CacheReader(layer(Backend()), cache.to(torch.uint8)).problem)
        self.assertIn("as they were written", CacheReader(layer(Rounding()), cache).problem)


if __name__ == "__main__":
    unittest.main()
