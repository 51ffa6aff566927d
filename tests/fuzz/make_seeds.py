#!/usr/bin/python3
"""Writes the seeds that are no texts: make_seeds.py KVSIM. Texts are edited by hand, where they lie.

Of a trace there are two more kinds beside the one that kvsim writes: without digests, which would refuse nearly every
mutant before it is looked at, and in HDF5's oldest form, whose metadata has no checksums and other structures.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import small_gguf as gguf  # noqa: E402

KVSIM = pathlib.Path(sys.argv[1]).resolve()
CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
GOLDEN = CORPUS.parents[1] / "golden" / "capture"


def kvsim(*arguments):
    subprocess.run([KVSIM, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def put(target, name, content):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(content)


def without_digests(source, path, libver, **more):
    """Copies a trace, but for what proves that its content is whole."""
    with h5py.File(source) as old, h5py.File(path, "w", libver=libver) as new:
        def attributes(one, other):
            for key, value in one.attrs.items():
                if key != "sha256" or other.name == "/tokenizer":
                    other.attrs.create(key, value, dtype=one.attrs.get_id(key).dtype)

        def copy(name, thing):
            if "xxh3" in name:
                return
            if isinstance(thing, h5py.Group):
                made = new.create_group(name)
            else:
                made = new.create_dataset(name, thing.shape, h5py.Datatype(thing.id.get_type()), chunks=thing.chunks,
                                          **(more if thing.chunks else {}))
                stored = np.empty(thing.shape, f"V{thing.id.get_type().get_size()}")  # 16-bit types have no name
                thing.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=thing.id.get_type())
                made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=thing.id.get_type())
            attributes(thing, made)

        attributes(old, new)
        old.visititems(copy)
        new.attrs.create("features", old.attrs["features"] & ~np.uint64(8), dtype="u8")
        new.attrs.create("content_sha256", np.bytes_(""), dtype="S1")


def gguf_seeds():
    """Files of every type of value and block, of a model, and wrong ones."""
    blocks = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
              13: (256, 176), 14: (256, 210), 39: (32, 17)}
    types = [(f"t{code}", (2 * items,), code, bytes(range(1, width + 1)) * 2) for code, (items, width) in blocks.items()]
    put("gguf", "every_type", gguf.gguf({"a": 1, "b": 0.5, "c": True, "d": "text", "e": ["x", ""], "f": [1, -2], "g": [0.5],
                                         "general.alignment": 32, "h": struct.pack("<Iq", 11, -3)}, types))
    keys = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 16, "llama.embedding_length": 32,
            "llama.feed_forward_length": 2, "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e4, "tokenizer.ggml.eos_token_id": 2}
    shapes = {"token_embd": (32, 3), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
              "blk.0.attn_q": (32, 32), "blk.0.attn_k": (32, 16), "blk.0.attn_v": (32, 16), "blk.0.attn_output": (32, 32),
              "blk.0.ffn_gate": (32, 2), "blk.0.ffn_up": (32, 2), "blk.0.ffn_down": (2, 32)}

    def tensor(name, shape):
        count = int(np.prod(shape))
        quantised = name.endswith(("_q", "_k", "embd"))
        return (name + ".weight", shape, *((8, bytes(34) * (count // 32)) if quantised else (30, bytes(2 * count))))

    model = [tensor(*item) for item in shapes.items()]
    put("gguf", "model", gguf.gguf(keys, model))
    scaled = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.original_context_length": 8}
    put("gguf", "yarn", gguf.gguf({**keys, **scaled}, model, version=2))
    put("gguf", "divisors", gguf.gguf(keys, [*model, ("rope_freqs.weight", (8,), 0, struct.pack("<8f", *range(1, 9)))]))
    experts = {"llama.expert_count": 2, "llama.expert_used_count": 1}
    stacked = [tensor(name, shape) for name, shape in shapes.items() if not name.startswith("blk.0.ffn_") or "norm" in name]
    stacked += [tensor("blk.0.ffn_gate_inp", (32, 2)), tensor("blk.0.ffn_gate_exps", (32, 2, 2)), tensor("blk.0.ffn_up_exps", (32, 2, 2)),
                ("blk.0.ffn_down_exps.weight", (32, 32, 2), 39, bytes(range(1, 18)) * 64)]
    put("gguf", "mixtral", gguf.gguf({**keys, **experts, "llama.feed_forward_length": 32}, stacked))
    four = {key.replace("llama", "llama4"): "llama4" if value == "llama" else value for key, value in {**keys, **experts}.items()}
    put("gguf", "llama4", gguf.gguf({**four, "llama4.expert_feed_forward_length": 32, "llama4.interleave_moe_layer_step": 1},
                                    [*stacked, tensor("blk.0.ffn_gate_shexp", (32, 32)), tensor("blk.0.ffn_up_shexp", (32, 32)),
                                     tensor("blk.0.ffn_down_shexp", (32, 32))]))
    put("gguf", "exaone4", gguf.gguf({key.replace("llama", "exaone4"): "exaone4" if value == "llama" else value
                                      for key, value in {**keys, "llama.attention.sliding_window": 4,
                                                         "llama.attention.sliding_window_pattern": [True]}.items()}, model))
    put("gguf", "phi3", gguf.gguf({key.replace("llama", "phi3"): "phi3" if value == "llama" else value
                                   for key, value in keys.items()}, model))
    whole, two = gguf.gguf(keys, model), [("a", (16,), 0, bytes(64)), ("b", (16,), 0, bytes(64))]
    put("gguf", "cut_off", whole[:-50])
    put("gguf", "cut_header", whole[:200])
    put("gguf", "many_tensors", gguf.gguf({}, counts=(2**64 - 1, 0)))
    put("gguf", "many_keys", gguf.gguf({}, counts=(0, 2**63)))
    put("gguf", "overlap", gguf.gguf({}, two, offsets=(0, 32)))
    put("gguf", "hole", gguf.gguf({}, two, offsets=(0, 96)))
    put("gguf", "unaligned", gguf.gguf({}, two, offsets=(0, 65)))
    put("gguf", "alignment", gguf.gguf({"general.alignment": 12}, two))
    put("gguf", "overflow", gguf.gguf({}, [("a", (2**62, 4), 0, bytes(64))]))
    put("gguf", "tensor_code", gguf.gguf({}, [("a", (16,), 4, bytes(64))]))
    put("gguf", "value_code", gguf.gguf({"a": struct.pack("<I", 13) + bytes(8)}))
    put("gguf", "nested", gguf.gguf({"a": struct.pack("<IIQ", gguf.ARRAY, gguf.ARRAY, 1) + bytes(12)}))
    put("gguf", "long_array", gguf.gguf({"a": struct.pack("<IIQ", gguf.ARRAY, gguf.UINT64, 2**61) + bytes(8)}))
    put("gguf", "long_text", gguf.gguf({"a": struct.pack("<IQ", gguf.TEXT, 2**64 - 1) + bytes(8)}))


def needing_seeds():
    """Traces that readers of schema 1 refuse: of a model with sinks, and of one with latents."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "ids.json").write_text("[3, 4, 5, 6, 7, 8]")
        for name, variant in ("sinks", "gpt_oss_sinks"), ("latents", "deepseek_v3_latent"):
            kvsim("capture", "--model", GOLDEN / variant, "--tokens", folder / "ids.json", "--max-new-tokens", 2, "--elem", "bf16",
                  "--attention", "window:2", "-o", folder / f"{name}.h5", "--quiet")
            without_digests(folder / f"{name}.h5", folder / f"new_{name}.h5", "earliest")
            put("trace", f"{name}.h5", (folder / f"new_{name}.h5").read_bytes())


def main():
    gguf_seeds()
    needing_seeds()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, more in (("written", []), ("bf16", ["--elem", "bf16"])):
            kvsim("trace", "generate", "--layers", 1, "--kv-heads", 1, "--head-dim", 8, "--prompt-tokens", 6, "--decode", 2,
                  "-o", folder / f"{name}.h5", *more)
            put("trace", f"{name}.h5", (folder / f"{name}.h5").read_bytes())
        (folder / "ids.json").write_text("[1, 2, 3, 4, 5, 6]")
        kvsim("capture", "--model", GOLDEN / "llama_rope_yarn", "--tokens", folder / "ids.json", "--max-new-tokens", 2,
              "--output-weights", "--attention", "full", "--column-statistics", "-o", folder / "everything.h5", "--quiet")
        for name, source, libver, more in (
                ("no_digests", "written", "latest", {}), ("oldest_form", "written", "earliest", {}),
                ("deflated", "written", "earliest", {"compression": 6, "shuffle": True, "fletcher32": True}),
                ("everything", "everything", "earliest", {})):
            without_digests(folder / f"{source}.h5", folder / f"new_{name}.h5", libver, **more)
            put("trace", f"{name}.h5", (folder / f"new_{name}.h5").read_bytes())
        put("trace", "cut_off.h5", (folder / "written.h5").read_bytes()[:9000])

        kvsim("trace", "generate", "--layers", 2, "--kv-heads", 2, "--head-dim", 8, "--prompt-tokens", 6, "--decode", 2,
              "-o", folder / "run.h5")
        kvsim("replay", folder / "run.h5", "--policy", "h2o", "--budget", 3, "--quiet",
              "--decisions", folder / "decisions.h5", "--format", "h5", "-o", folder / "results.h5")
        for target, other in (("decisions", "results"), ("results_hdf5", "decisions")):
            own = "results" if target == "results_hdf5" else target
            put(target, "written.h5", (folder / f"{own}.h5").read_bytes())
            put(target, "another_file.h5", (folder / f"{other}.h5").read_bytes())

        kvsim("calibrate", "matryoshka", folder / "run.h5", "-o", folder / "calibration.h5", "--quiet")
        put("calibration", "written.h5", (folder / "calibration.h5").read_bytes())
        put("calibration", "another_file.h5", (folder / "decisions.h5").read_bytes())

        for name, libver, shape, dtype in (("f32", "latest", (2, 2, 8), "f4"), ("f64", "earliest", (2, 2, 5), "f8"),
                                           ("u8", "earliest", (2, 2, 8), "u1"), ("wrong_shape", "latest", (2, 3), "f4")):
            with h5py.File(folder / "scores.h5", "w", libver=libver) as file:
                file["scores"] = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            put("external_scores", f"{name}.h5", (folder / "scores.h5").read_bytes())


if __name__ == "__main__":
    main()
