"""What the commands that run a model share: options of marks and answers, inputs, progress, and exit codes."""
import contextlib
import json
import os
import re
import sys

from .command_line import INPUT, INTERRUPTED, USAGE, UsageError, catch_termination, natural, real
from .marks import PARTS
from .token_selection import EVERY_OCCURRENCE, SelectionError
from .trace_error import TraceError

MAX_INPUT_BYTES = 256 << 20


def add_mark_options(parser):
    for part, what in ("context", "what is to be read"), ("question", "what is asked"), ("evidence", "where the answer stands"):
        parser.add_argument(f"--mark-{part}", metavar="TEXT|TOKENS", action="append", default=[],
                            help=f"marks a part of the prompt as {part}, {what}: text in it, or token numbers such as "
                                 "120:135,300 (120 to 134, and 300); text of that form is written text:300")
    parser.add_argument("--occurrence", metavar="N|all", type=occurrence,
                        help="which one is meant of such a text that occurs several times, from 1")


def printable(text):
    """An answer without characters that move a terminal's cursor."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def add_answer_options(parser):
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--max-new-tokens", metavar="N", type=natural(0), default=64, help="default 64")
    answer.add_argument("--answer-tokens", metavar="FILE",
                        help="token ids to go on with instead of generating: another engine's answer")
    parser.add_argument("--ignore-eos", action="store_true", help="generate on past an end-of-text token")
    parser.add_argument("--temperature", metavar="X", type=real(0, 1e6), default=0.0, help="default 0: the likeliest token")
    parser.add_argument("--top-k", metavar="K", type=natural(0), default=0, help="default 0: all tokens")
    parser.add_argument("--top-p", metavar="P", type=real(0, 1), default=1.0, help="default 1: all tokens")
    parser.add_argument("--seed", metavar="N", type=natural(0), default=0, help="of tokens and queries drawn; default 0")


def check_answer_options(options):
    if options.temperature == 0 and (options.top_k or options.top_p < 1):
        raise UsageError("--top-k, --top-p: mean nothing to greedy decoding\n  Add --temperature X, such as 1.")
    if options.top_p == 0:
        raise UsageError("--top-p: must be above 0")
    if options.answer_tokens and options.temperature:
        raise UsageError("--answer-tokens: nothing is drawn\n  Leave out --temperature.")


def occurrence(text):
    return text if text == EVERY_OCCURRENCE else natural(1)(text)


def marked_parts(options):
    return {part: getattr(options, f"mark_{part}") for part in PARTS}


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def read_text(path):
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
        if len(data) > MAX_INPUT_BYTES:
            raise TraceError("is larger than 256 MiB", path)
        return data.decode()
    except OSError as error:
        raise TraceError(error.strerror, path) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"is not UTF-8 at byte {error.start}", path) from error


def parse_ids(text, vocabulary, where):
    try:
        ids = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
    except ValueError as error:
        raise TraceError(f"not token ids: {error}", where,
                         "Expected a JSON array of ids, or ids separated by white space.") from error
    for index, token_id in enumerate(ids):
        if type(token_id) is not int or not 0 <= token_id < vocabulary:
            raise TraceError(f"{token_id!r} is not an id of the model's vocabulary of {vocabulary}",
                             f"{where} token {index}")
    return ids


class Progress:
    """One line on a terminal's standard error."""

    def __init__(self, label, quiet, total=None):
        self._label, self._of = label, f" of {total}" if total else ""
        self._shown = not quiet and sys.stderr.isatty()
        self._done = 0

    def __call__(self, tokens):
        self._done += tokens
        if self._shown:
            print(f"\r{self._label}: {self._done}{self._of} tokens", end="", file=sys.stderr, flush=True)

    def end(self):
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def run_command(name, parse_arguments, run, arguments):
    """Runs a command; returns its exit code."""
    catch_termination()
    try:
        options = parse_arguments(arguments)
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return USAGE
    try:
        run(options)
    except (UsageError, SelectionError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if "out of memory" in str(error) or "can't allocate memory" in str(error):
            error = f"out of memory\n  Lower --prefill-chunk or the prompt, or compute in fewer bits. ({first_line(error)})"
        elif not isinstance(error, (TraceError, OSError)):
            raise
        print(f"{name}: {error}", file=sys.stderr)
        return INPUT
    return 0
