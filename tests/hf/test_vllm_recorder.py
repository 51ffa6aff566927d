"""What kvsim.vllm records of drafts and of latent attention, in an engine that stands in for vLLM: the rows of its attention are told by
token and position, and a test says which tokens a pass computes."""
import pathlib
import sys
import tempfile
import types
import unittest
from types import SimpleNamespace as Things
from unittest import mock

import h5py
import numpy as np
import torch

HEADS, DIM, LATENT, TURNED, PLAIN = 2, 8, 6, 2, 3
NAMES = {"vllm": {"__version__": "0.32.0"}, "vllm.distributed.parallel_state": {"get_tensor_model_parallel_rank": lambda: 0},
         "vllm.model_executor.layers.attention_layer_base": {"AttentionLayerBase": type("AttentionLayerBase", (), {})},
         "vllm.tokenizers.registry": {"cached_tokenizer_from_config": None}}
BASE = NAMES["vllm.model_executor.layers.attention_layer_base"]["AttentionLayerBase"]


class Attention(torch.nn.Module, BASE):
    num_heads, num_kv_heads, head_size, head_size_v, sliding_window = HEADS, HEADS, DIM, DIM, None
    has_sink, attn_type, kv_sharing_target_layer_name, use_sparse, non_causal_multi_token_decode = False, "decoder", None, False, False
    attn_backend = Things(get_name=lambda: "STAND_IN")

    def __init__(self, name):
        super().__init__()
        self.layer_name, self.impl = name, Things(scale=0.5, forward=lambda *_: None)

    def attend(self, ids, positions):
        self.impl.forward(self, *(rows(kind, ids, positions, HEADS, DIM) for kind in "qkv"), None, Things())


class MLAAttention(torch.nn.Module, BASE):
    num_heads, num_kv_heads, head_size, sliding_window, kv_lora_rank = HEADS, 1, LATENT + TURNED, None, LATENT
    qk_nope_head_dim, qk_rope_head_dim, use_sparse, non_causal_multi_token_decode = PLAIN, TURNED, False, False
    attn_backend = Things(get_name=lambda: "STAND_IN")

    def __init__(self, name):
        super().__init__()
        self.layer_name, self.impl = name, Things(scale=0.5)
        self.W_UK_T = torch.arange(HEADS * PLAIN * LATENT).float().view(HEADS, PLAIN, LATENT)

    def forward_impl(self, *_, output=None):
        pass

    def attend(self, ids, positions):
        self.forward_impl(rows("q", ids, positions, HEADS, PLAIN + TURNED), rows("k", ids, positions, 1, LATENT)[:, 0],
                          rows("v", ids, positions, 1, TURNED), None, Things(), output=None)


NAMES |= {"vllm.model_executor.layers.attention.attention": {"Attention": Attention},
          "vllm.model_executor.layers.attention.mla_attention": {"MLAAttention": MLAAttention}}
NAMES = {package: {} for path in NAMES for package in (path.rsplit(".", up)[0] for up in range(1, path.count(".") + 1))} | NAMES
for path, members in NAMES.items():
    sys.modules[path] = types.ModuleType(path)
    vars(sys.modules[path]).update(members)
from kvsim.vllm import engine_recorder  # noqa: E402 - behind what stands in for vLLM
from kvsim.writing.trace_error import TraceError  # noqa: E402
for path in NAMES:  # transformers asks whether there is a vLLM
    del sys.modules[path]


def rows(kind, ids, positions, heads, dim):
    """[n, heads, dim], different for each element."""
    row = torch.tensor([[7.0 * token + 100 * position + 1000 * "qkv".index(kind)] for token, position in zip(ids, positions)])
    return (row + torch.arange(heads * dim) / 16).view(len(ids), heads, dim)


class Runner:
    """vLLM's, of one request."""
    device, input_batch = torch.device("cpu"), Things(req_ids=["7-0123abcd"])

    def __init__(self, kind, prompt, max_tokens=50, async_scheduling=False, stops=()):
        self.model = torch.nn.Sequential(kind("0"), kind("1"))
        drafter = kind("drafter")
        config = Things(to_json_string=lambda: "{}", model_type="stand_in")
        self.vllm_config = Things(
            model_config=Things(model="stand-in", dtype=torch.float32, hf_text_config=config, architecture="", uses_mrope=False,
                                enforce_eager=True, skip_tokenizer_init=True, get_vocab_size=lambda: 99, get_hidden_size=lambda: 8,
                                get_total_num_kv_heads=lambda: HEADS),
            parallel_config=Things(world_size=1, tensor_parallel_size=1), speculative_config=Things(use_ngram_gpu=lambda: False),
            scheduler_config=Things(async_scheduling=async_scheduling, max_num_batched_tokens=64),
            compilation_config=Things(static_forward_context={layer.layer_name: layer for layer in (*self.model, drafter)} | {"experts": 0},
                                      cudagraph_mode=Things(has_full_cudagraphs=lambda: False)))
        self.kv_cache_config = Things(num_blocks=5, kv_cache_groups=[Things(kv_cache_spec=Things(block_size=16))])
        self.drafter, self.new, self.output = drafter, True, []
        self.sampling = Things(temperature=0, max_tokens=max_tokens, eos_token_id=None, stop_token_ids=stops)
        self.prompt = prompt
        self.requests = {"7-0123abcd": Things(sampling_params=self.sampling, output_token_ids=self.output,
                                              get_token_id=lambda at: (prompt + self.output)[at])}

    def get_model(self):
        return self.model

    def execute_model(self, scheduled):
        for layer in (*self.model, self.drafter):
            layer.attend(self.ids, range(self.first, self.first + len(self.ids)))

    def step(self, first, ids, drafts, output):
        """A pass over `ids` and `drafts` from position `first` on, behind which `output` is generated."""
        request, = self.requests
        new = [Things(req_id=request, mm_features=None, prompt_embeds=None, pooling_params=None, prompt_token_ids=self.prompt,
                      sampling_params=self.sampling, num_computed_tokens=0)]
        self.first, self.ids = first, ids + drafts
        self.input_batch.num_computed_tokens_cpu, self.input_ids = [first], Things(gpu=torch.tensor(self.ids))
        self.execute_model(Things(finished_req_ids=(), scheduled_new_reqs=new if self.new else (),
                                  num_scheduled_tokens={request: len(self.ids)},
                                  scheduled_spec_decode_tokens={request: drafts} if drafts else {}))
        self.new = False
        self.output += output


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def record(self, runner, steps):
        """The request's entry, and the recording's file."""
        engine_recorder.start(runner, {"path": str(self.folder / "{request}.h5"), "log": str(self.folder / "log"), "overwrite": True})
        for step in steps:
            runner.step(*step)
        said, = engine_recorder.stop(runner)["requests"]
        file = h5py.File(said["file"])
        self.addCleanup(file.close)
        return said, file


DRAFTED = [(0, [5, 6, 7], [], [8]), (3, [8], [9, 10, 11], [9, 12]), (5, [12], [13, 14], [13, 14, 15])]


class Drafts(Recorded):
    def test_rows_are_those_of_accepted_tokens(self):
        said, file = self.record(Runner(Attention, [5, 6, 7]), [*DRAFTED, (8, [15], [16], [17])])
        self.assertEqual((said["drafted"], said["rejected"], said["generated"], said["problem"]), (6, 3, 6, None))
        ids = [5, 6, 7, 8, 9, 12, 13, 14, 15]
        self.assertEqual(file["tokens/id"][:].tolist(), ids)
        self.assertEqual((file["passes/q_len"][:].tolist(), file["passes/past_len"][:].tolist()), ([3, 2, 3, 1], [0, 3, 5, 8]))
        self.assertEqual(len(file["layers"]), 2)  # those of the model that drafts are left out
        for layer in file["layers"].values():
            for kind in "qkv":
                self.assertTrue(np.array_equal(layer[kind], rows(kind, ids, range(9), HEADS, DIM).transpose(0, 1)), kind)

    def test_what_preemption_computes_again_is_left_out(self):
        said, file = self.record(Runner(Attention, [5, 6, 7]), [*DRAFTED[:2], (0, [5, 6, 7, 8, 9, 12], [], [13])])
        self.assertEqual((said["computed_again"], file["tokens/id"][:].tolist()), (5, [5, 6, 7, 8, 9, 12]))
        self.assertTrue(np.array_equal(file["layers/0001/k"], rows("k", [5, 6, 7, 8, 9, 12], range(6), HEADS, DIM).transpose(0, 1)))

    def test_accepted_drafts_behind_the_end_are_left_out(self):
        for ends in ({"max_tokens": 4}, {"stops": [13]}):
            said, file = self.record(Runner(Attention, [5, 6, 7], **ends), DRAFTED)
            self.assertEqual((file["tokens/id"][:].tolist(), said["rejected"]), ([5, 6, 7, 8, 9, 12, 13], 3))
            self.assertIn('"output": [8, 9, 12, 13]', (self.folder / "log").read_text())

    def test_a_pass_that_does_not_wait_for_rejections_is_refused(self):
        with self.assertRaisesRegex(TraceError, "async_scheduling=False"):
            engine_recorder.start(Runner(Attention, [5], async_scheduling=True), {"path": str(self.folder / "{request}.h5")})


class Latent(Recorded):
    def test_keys_are_latents_and_queries_absorbed(self):
        runner = Runner(MLAAttention, [5, 6, 7])
        _, file = self.record(runner, DRAFTED)
        ids = [5, 6, 7, 8, 9, 12, 13, 14]
        self.assertEqual([file["model"].attrs[name] for name in ("n_kv_heads", "head_dim", "v_head_dim", "first_rotated")],
                         [1, LATENT + TURNED, LATENT, LATENT])
        self.assertEqual((file.attrs["schema_major"], "v" in file["layers/0000"]), (2, False))
        own = rows("q", ids, range(8), HEADS, PLAIN + TURNED)
        turned = rows("v", ids, range(8), 1, TURNED)
        keys = torch.cat([rows("k", ids, range(8), 1, LATENT), turned], -1)
        absorbed = torch.cat([torch.einsum("nhp,hpr->nhr", own[..., :PLAIN], runner.model[1].W_UK_T), own[..., PLAIN:]], -1)
        self.assertTrue(np.array_equal(file["layers/0001/k"], keys.transpose(0, 1)))
        np.testing.assert_allclose(file["layers/0001/q"], absorbed.transpose(0, 1), rtol=1e-6)

    def test_an_indexer_is_refused(self):
        with mock.patch.object(MLAAttention, "use_sparse", True), self.assertRaisesRegex(TraceError, "indexer"):
            engine_recorder.start(Runner(MLAAttention, [5]), {"path": str(self.folder / "{request}.h5")})

    def test_blocks_are_found_behind_those_of_requests_that_decode(self):
        tables = Things(decode=Things(block_table=torch.tensor([[1, 2], [3, 4]])), prefill=Things(block_table=torch.tensor([[5, 6]])))
        self.assertEqual([engine_recorder._blocks(tables, row).tolist() for row in range(3)], [[1, 2], [3, 4], [5, 6]])
        self.assertIsNone(engine_recorder._blocks(Things(), 0))


if __name__ == "__main__":
    unittest.main()
