#!/usr/bin/python3
"""Writes the seeds that are no texts: make_seeds.py KVSIM. Texts are edited by hand, where they lie.

Of a trace there are two more kinds beside the one that kvsim writes: without digests, which would refuse nearly every
mutant before it is looked at, and in HDF5's oldest form, whose metadata has no checksums and other structures.
"""
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np

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


def main():
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
