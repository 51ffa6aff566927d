#!/usr/bin/env python3
"""The parameters that kvsim counts for the models of its catalogue, beside those of transformers' own classes, which are built on a
device without memory.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_model_sizes_torch.py KVSIM SOURCE_DIR
"""
from torch_python import require_torch

require_torch()

import csv  # noqa: E402 - from here on there is torch
import io  # noqa: E402
import json  # noqa: E402

import torch  # noqa: E402
import transformers  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

TYPES = {"kimi_k2": "deepseek_v3"}  # what transformers calls otherwise
UNKNOWN = {"yoco-3b"}  # which it has no class for: tests/unit/cost counts it by hand


def counted(fields):
    """Parameters, with the numbers that are added to experts' scores, which classes hold as buffers."""
    kind = TYPES.get(fields["model_type"], fields["model_type"])
    fields = {key: value for key, value in fields.items()
              if key not in ("model_type", "quantization_config") and not key.startswith("kvsim_")}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **fields))
    corrections = [buffer.numel() for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    return sum(parameter.numel() for parameter in model.parameters()) + sum(corrections)


class ModelSizes(CommandTest):
    def test_the_catalogue_has_the_parameters_of_transformers(self):
        table = self.kvsim("cost", "models", "--format", "csv")
        self.assertEqual(table.returncode, 0, table.stderr)
        rows = {row["model"]: int(row["parameters"]) for row in csv.DictReader(io.StringIO(table.stdout))}
        files = sorted((SOURCE / "sim/cost/catalogue/models").glob("*.json"))
        self.assertEqual({file.stem for file in files}, set(rows))
        for file in files:
            if file.stem in UNKNOWN:
                continue
            with self.subTest(file.stem):
                self.assertEqual(counted(json.loads(file.read_text())), rows[file.stem])


if __name__ == "__main__":
    main()
