"""Makes a kvsim trace of arrays: the queries, keys and values of a run, recorded by whatever means.

Arrays (.npz, .safetensors), by name; H heads, N tokens, d components of a head:
  layers.0.q  [Hq, Nq, d]    queries of layer 0 as attention used them: after bias, norm and RoPE, before the scale
  layers.0.k  [Hkv, N, d]    keys likewise; query head h reads KV head h // (Hq / Hkv)
  layers.0.v  [Hkv, N, dv]   values
or q, k, v with the layers as an axis before these. An axis of 1 (batch) before the heads is taken off.
  q_pre, k_pre in place of q and k: before RoPE. They are rotated here, in float64.
  attention   [Hq, R, N] per layer, in place of q or beside it: the attention of the last R tokens to all tokens, as
              output_attentions=True gives it; what needs queries is then refused by kvsim replay
  column_sum, column_sum_squares [Hq, C] per layer, optional: what each of the prompt's C tokens received of their attention
  wo          [Hq, dv, hidden] per layer, optional: output projection (traces/format/SCHEMA.md)
  token_ids   [N]   optional: without them ids are withheld
  positions   [N]   optional: 0, 1, 2, ...
  q_token     [Nq]  the token of each query row; needed unless Nq = N
  inv_freq    [rotary_dim / 2]  RoPE frequencies; in place of --theta
float32, float16, and bfloat16 (safetensors; npz: its bits as uint16, with --elem bf16) are stored as they are.
"""
import argparse
import json
import os
import re
import sys

from ..writing.command_line import Parser, UsageError, check_output, natural, real
from ..writing.run_options import run_command
from ..writing.trace_error import TraceError
from .import_run import import_run

NAME = "import_arrays.py"
EXAMPLES = """Examples:
  import_arrays.py run.npz --layout half_split --theta 500000 --prompt-tokens 1024 -o run.h5
  import_arrays.py a.safetensors b.safetensors --layout half_split --config config.json --prompt-tokens 900 -o run.h5
  import_arrays.py dump.npz --layout interleaved --theta 10000 --window 4096 --source llama.cpp -o run.h5
"""
MAX_CONFIG = 1 << 20


def windows(text):
    if not re.fullmatch(r"(-1|[1-9][0-9]{0,8})(,(-1|[1-9][0-9]{0,8}))*", text):
        raise argparse.ArgumentTypeError(f"\"{text}\" is no window, nor one for each layer with commas between them")
    return [int(word) for word in text.split(",")]


def parse_arguments(arguments):
    parser = Parser(NAME, __doc__, EXAMPLES)
    parser.add_argument("arrays", metavar="FILE", nargs="+", help=".npz or .safetensors")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the trace")
    parser.add_argument("--layout", required=True, choices=["half_split", "interleaved", "none"],
                        help="how RoPE pairs components: i with i + rotary_dim/2 (Hugging Face), 2i with 2i+1 (GGUF), or "
                             "no RoPE")
    parser.add_argument("--theta", metavar="X", type=real(1, 1e12), help="base of the RoPE frequencies")
    parser.add_argument("--rotary-dim", metavar="R", type=natural(2), help="components that RoPE turns; default: all")
    parser.add_argument("--prompt-tokens", metavar="P", type=natural(1),
                        help="tokens of the prompt; those after it were generated. Default: all")
    parser.add_argument("--elem", choices=["auto", "f32", "f16", "bf16"], default="auto",
                        help="stored elements; default auto: as the arrays")
    parser.add_argument("--scale", metavar="X", type=real(1e-6, 1e6),
                        help="factor on q.k before the softmax; default 1 / sqrt(d)")
    parser.add_argument("--window", metavar="W[,W...]", type=windows, default=[-1],
                        help="sliding window of all layers, or one for each; -1: full attention, the default")
    parser.add_argument("--softcap", metavar="X", type=real(0, 1e6), default=0.0, help="of logits; default 0: none")
    parser.add_argument("--config", metavar="FILE",
                        help="the model's config.json: kept in the trace, and what is not told otherwise is taken from it: "
                             "rope_theta, vocab_size, hidden_size")
    parser.add_argument("--vocab-size", metavar="N", type=natural(1), help="default: one more than the largest id")
    parser.add_argument("--name", default="", help="of the model")
    parser.add_argument("--source", default="", help="where the arrays come from; default: the kind of file")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trace")
    options = parser.parse_args(arguments)
    if options.layout == "none" and (options.theta or options.rotary_dim):
        raise UsageError("--layout none: there is no RoPE, so it has no --theta and no --rotary-dim")
    check_output(options)
    return options


def read_config(path):
    """The text of config.json and its parsed content."""
    if path is None:
        return b"", {}
    with open(path, "rb") as file:
        text = file.read(MAX_CONFIG + 1)
    try:
        config = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is not JSON: {error}", path) from error
    if len(text) > MAX_CONFIG or not isinstance(config, dict):
        raise TraceError("is no config.json of at most 1 MiB", path)
    return text, config


def run(options):
    model, tokens = import_run(options, *read_config(options.config))
    print(f"{options.output}: {model.n_layers} layers, {model.n_q_heads} query and {model.n_kv_heads} KV heads of "
          f"{model.head_dim}, {tokens} tokens ({os.path.getsize(options.output)} bytes)")


def main(arguments):
    return run_command(NAME, parse_arguments, run, arguments)
