"""Runs a GGUF file with llama.cpp and records what its attention saw, as a kvsim trace."""
import json
import os

from ..hf.chat import read_messages
from ..writing.command_line import Parser, UsageError, check_output, natural
from ..writing.run_options import (Progress, add_answer_options, add_mark_options, check_answer_options, marked_parts, parse_ids,
                                   printable, read_text, run_command)
from ..writing.trace_error import TraceError

NAME = "kvsim capture --engine llama.cpp"
EXAMPLES = """Examples:
  kvsim capture --engine llama.cpp --model ~/models/Qwen3-0.6B-Q8_0.gguf --prompt question.txt --max-new-tokens 32 -o run.h5
  kvsim capture --engine llama.cpp --model ~/models/gemma-3-1b-it-Q4_K_M.gguf --chat messages.json --cache q8_0 -o chat.h5
  kvsim capture --engine llama.cpp --model ~/models/Qwen3-0.6B-Q8_0.gguf --state slots/first.bin -o first.h5
"""
FLASH = {"auto": None, "on": True, "off": False}
CACHES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def parse_arguments(arguments):
    parser = Parser(NAME, __doc__, EXAMPLES)
    parser.add_argument("--engine", choices=["llama.cpp"], help="this one")
    parser.add_argument("--model", metavar="FILE", required=True, help="GGUF file")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="FILE", help="UTF-8 text, taken as it is; - is standard input")
    prompt.add_argument("--tokens", metavar="FILE", help="token ids: a JSON array, or separated by white space")
    prompt.add_argument("--chat", metavar="FILE", help="JSON array of {role, content}: the file's chat template makes the prompt")
    prompt.add_argument("--state", metavar="FILE",
                        help="what a run of llama.cpp saved (a slot, a state, a prompt cache): goes on from there")
    add_mark_options(parser)
    add_answer_options(parser)
    parser.add_argument("--prefill-chunk", metavar="N", type=natural(1), default=512, help="prompt tokens per pass; default 512")
    parser.add_argument("--cache", choices=CACHES, default="f16",
                        help="type of llama.cpp's cache; the trace has what comes out of it. Default f16, as llama.cpp")
    parser.add_argument("--flash-attention", choices=FLASH, default="auto", help="default auto: llama.cpp's choice")
    parser.add_argument("--threads", metavar="N", type=natural(1), help="default: all")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the trace")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trace")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    check_answer_options(options)
    for name in ("cache", "flash_attention") if options.state else ():
        if getattr(options, name) != parser.get_default(name):
            raise UsageError(f"--{name.replace('_', '-')}: of a saved state it is what it was\n  Leave it out.")
    check_output(options)
    return options


def given_ids(path):
    return parse_ids(read_text(path), 1 << 31, path)


def capture(options):
    try:
        from .recording import record
    except ImportError as error:
        raise UsageError(f"cannot import {error.name}: {error}\n  pip install 'kvsim[llama-cpp]'") from error
    prompt = {}
    if options.chat:
        try:
            prompt["messages"] = read_messages(json.loads(read_text(options.chat)), options.chat)
        except ValueError as error:
            raise TraceError(f"is not JSON: {error}", options.chat) from error
    elif options.state:
        prompt["state"] = options.state
    elif options.tokens:
        prompt["tokens"] = given_ids(options.tokens)
    else:
        prompt["prompt"] = read_text(options.prompt)
    given = given_ids(options.answer_tokens) if options.answer_tokens else None
    progress = Progress(options.output, options.quiet)
    try:
        run = record(options.model, options.output, **prompt, answer_tokens=given, cache=options.cache,
                     flash=FLASH[options.flash_attention], on_tokens=progress, occurrence=options.occurrence, **marked_parts(options),
                     **{name: getattr(options, name) for name in ("max_new_tokens", "ignore_eos", "temperature", "top_k", "top_p", "seed",
                                                                  "prefill_chunk", "threads", "overwrite")})
    finally:
        progress.end()
    print(f"prompt     {len(run.prompt)} tokens")
    print(f"generated  {len(run.generated)} tokens")
    if len(run.kept_layers) < run.layers:
        print(f"layers     {', '.join(map(str, run.kept_layers))} of {run.layers}: the others have no keys and values")
    print(f"wrote      {options.output} ({os.path.getsize(options.output)} bytes)")
    if run.text is not None:
        print("text       " + printable(run.text))


def main(arguments):
    return run_command(NAME, parse_arguments, capture, arguments)
