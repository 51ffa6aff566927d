"""Runs a Hugging Face checkpoint with transformers and records what its attention saw, as a kvsim trace."""
import json
import os
import re

from ..writing.command_line import Parser, UsageError, check_output, natural
from ..writing.marks import Marks
from ..writing.run_options import (Progress, add_answer_options, add_mark_options, check_answer_options, first_line, marked_parts,
                                   parse_ids, printable, read_text, run_command)
from ..writing.trace_error import TraceError
from .row_choice import parse_attention, parse_queries

EXAMPLES = """Examples:
  capture_hf.py traces/sample/model --prompt traces/sample/prompts/needle-0500-one.txt --max-new-tokens 8 -o run.h5
  capture_hf.py ~/models/Qwen3-0.6B --chat messages.json --max-new-tokens 64 -o chat.h5
  capture_hf.py ~/models/Llama-3.2-1B --prompt book.txt --question who.txt --question when.txt -o questions.h5
  capture_hf.py ~/models/Qwen3-0.6B --prompt story.txt --mark-evidence "The code of the red safe is 4721." -o safe.h5
  capture_hf.py ~/models/Mistral-7B --prompt long.txt --device cuda --dtype bfloat16 --queries window:512 -o slim.h5
"""
NAME = "capture_hf.py"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def parse_arguments(arguments):
    parser = Parser(NAME, __doc__, EXAMPLES)
    parser.add_argument("model", metavar="MODEL_OR_DIR", help="folder of a checkpoint, or a name on the Hugging Face Hub")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="FILE", help="UTF-8 text, taken as it is; - is standard input")
    prompt.add_argument("--tokens", metavar="FILE", help="token ids: a JSON array, or separated by white space")
    prompt.add_argument("--chat", metavar="FILE",
                        help="JSON array of {role, content}: the model's chat template makes the prompt")
    parser.add_argument("--question", metavar="FILE", action="append", default=[],
                        help="text after --prompt; several share it and are answered one by one")
    add_mark_options(parser)
    add_answer_options(parser)
    parser.add_argument("--prefill-chunk", metavar="N", type=natural(1), default=2048,
                        help="prompt tokens per call; default 2048")
    parser.add_argument("--queries", default="all",
                        help="rows of queries to store: all | window:W | sample:K | window:W,sample:K; default all")
    parser.add_argument("--attention", default="none",
                        help="attention rows to store: none | window:W | full; default none")
    parser.add_argument("--column-statistics", action="store_true",
                        help="store what prompt keys received in sum; done anyway where queries are left out")
    parser.add_argument("--output-weights", action="store_true", help="store each layer's output projection too")
    parser.add_argument("--device", default="cpu", help="cpu | cuda | cuda:N; default cpu")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "float16", "bfloat16"],
                        help="what the model computes in; default auto: what the checkpoint has")
    parser.add_argument("--kernel", default="auto", choices=["auto", "sdpa", "eager"],
                        help="attention of transformers; default auto: its choice for the model")
    parser.add_argument("--threads", metavar="N", type=natural(1), help="default: torch's choice")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the trace")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trace")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if options.question and not options.prompt:
        raise UsageError("--question needs --prompt: the document asked about")
    check_answer_options(options)
    if options.answer_tokens and options.question:
        raise UsageError("--answer-tokens: gives one answer\n  Leave out --question.")
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", options.device):
        raise UsageError(f"--device: \"{options.device}\" is no device\n  Expected cpu, cuda or cuda:N.")
    check_rows(options)
    check_output(options)
    return options


def check_marks(options, tokenizer, prompt, questions):
    """Checks the marks before the model runs. With several questions, token numbers are checked at the end, because
    answers lie between their tokens."""
    marks = Marks(marked_parts(options), options.occurrence, "--mark-{}")
    if not marks:
        return
    from .token_text import TokenText
    from ..writing.trace_header import Segment
    text = None
    if tokenizer is not None:
        spelled = TokenText(tokenizer)
        text = [spelled.bytes(token_id) for ids in (prompt, *questions) for token_id in ids]
    segments = [Segment(len(prompt))] + [Segment(len(question), 0) for question in questions]
    marks.tokens(segments, text, with_numbers=not questions)


def check_rows(options):
    """Checks the choices of rows before the model is loaded."""
    try:
        parse_queries(options.queries, "--queries", options.seed)
        parse_attention(options.attention, "--attention")
    except TraceError as error:
        raise UsageError(str(error)) from error


def load_libraries():
    """Imports the libraries only now, so that --help and misspelt options answer at once."""
    try:
        import torch
        import transformers
        from . import session  # noqa: F401 - needs h5py, too
    except ImportError as error:
        raise UsageError(f"cannot import {error.name}: {error}\n  pip install torch transformers h5py") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return torch, transformers


def load_model(options, torch, transformers):
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError("--device: no CUDA device is available to torch\n  Use --device cpu.")
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = options.dtype if options.dtype == "auto" else getattr(torch, options.dtype)
    dtype_option = "dtype" if hasattr(transformers.PretrainedConfig(), "dtype") else "torch_dtype"  # its name in older
                                                                                                    # versions
    local = os.path.isdir(options.model)
    if options.model.startswith(("/", ".", "~")) and not local:
        raise TraceError("no such folder", options.model)
    kernel = {} if options.kernel == "auto" else {"attn_implementation": options.kernel}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, local_files_only=local,
                                                                  **{dtype_option: dtype}, **kernel)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        elsewhere = "" if local else "is no folder here, and "
        raise TraceError(f"{elsewhere}cannot be loaded: {first_line(error)}", options.model,
                         "Expected a folder with config.json and safetensors, or a model's name on the Hub.") from error
    return model.to(options.device).eval(), load_tokenizer(options, transformers)


def load_tokenizer(options, transformers):
    """The tokenizer; None if there is none and --tokens does not need one."""
    local = os.path.isdir(options.model)
    try:
        if local and not any(os.path.exists(os.path.join(options.model, name)) for name in TOKENIZER_FILES):
            raise OSError("there are no files of one")  # transformers would create an empty one for some models
        return transformers.AutoTokenizer.from_pretrained(options.model, local_files_only=local)
    except Exception as error:  # tokenizers fail in many ways
        if options.tokens:
            return None
        raise TraceError(f"its tokenizer cannot be loaded: {first_line(error)}", options.model,
                         "Tokenize the prompt elsewhere and pass the ids with --tokens.") from error


def tokenize(options, tokenizer, vocabulary):
    """(prompt ids, notes on them or None, flags the notes know, ids of each question)"""
    from .chat import read_messages, tokenize_chat
    notes, known = None, 0
    if options.tokens:
        ids = parse_ids(read_text(options.tokens), vocabulary, options.tokens)
    elif options.chat:
        try:
            messages = json.loads(read_text(options.chat))
        except ValueError as error:
            raise TraceError(f"is not JSON: {error}", options.chat) from error
        ids, notes, known = tokenize_chat(tokenizer, read_messages(messages, options.chat), options.chat)
    else:
        ids = tokenizer(read_text(options.prompt))["input_ids"]
    where = options.tokens or options.chat or options.prompt
    if not ids:
        raise TraceError("holds no token", where)
    if max(ids) >= vocabulary:
        raise TraceError(f"has id {max(ids)}, outside the model's vocabulary of {vocabulary}", where,
                         "The tokenizer belongs to another model.")
    questions = [tokenizer(read_text(path), add_special_tokens=False)["input_ids"] for path in options.question]
    for path, question in zip(options.question, questions):
        if not question:
            raise TraceError("holds no token", path)
    return ids, notes, known, questions


def end_ids(model):
    config = getattr(model, "generation_config", None) or model.config
    found = config.eos_token_id if config.eos_token_id is not None else model.config.eos_token_id
    return found if isinstance(found, list) else [] if found is None else [found]


def run(session, generator, options, prompt, notes, known, questions, given):
    """Returns the ids of each answer."""
    from ..writing.token_tree import Note
    from ..writing.trace_header import FLAGS, ROLES
    if not questions:
        session.describe_prompt(notes or [Note() for _ in prompt], known)
        cache, logits = generator.prefill(prompt)
        return [generator.answer(cache, given) if given else generator.decode(cache, logits, options.max_new_tokens)]
    known = FLAGS["question"] | FLAGS["context"]
    document = [Note(ROLES["document"], FLAGS["context"]) for _ in prompt]
    session.describe_prompt(document, known)
    shared, _ = generator.prefill(prompt)
    answers = []
    for question in questions:
        asked = [Note(ROLES["user"], FLAGS["question"]) for _ in question]
        session.describe_prompt(document + asked, known)
        cache, logits = generator.prefill(question, generator.copy_of(shared))
        answers.append(generator.decode(cache, logits, options.max_new_tokens))
    return answers


def capture(options):
    torch, transformers = load_libraries()
    from . import trace
    from .generation import Generator
    from .sampling import Sampling
    model, tokenizer = load_model(options, torch, transformers)
    vocabulary = model.config.get_text_config().vocab_size
    prompt, notes, known, questions = tokenize(options, tokenizer, vocabulary)
    check_marks(options, tokenizer, prompt, questions)
    given = None
    if options.answer_tokens:
        given = parse_ids(read_text(options.answer_tokens), vocabulary, options.answer_tokens)
        options.max_new_tokens = len(given)
    check_length(model, options, len(prompt) + max(map(len, questions), default=0))
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    total = len(prompt) + sum(map(len, questions)) + options.max_new_tokens * max(len(questions), 1)
    progress = Progress(options.output, options.quiet, total)
    generator = Generator(model, sampling, options.prefill_chunk, [] if options.ignore_eos else end_ids(model), progress)
    directory = options.model if os.path.isdir(options.model) else None
    try:
        with trace(model, options.output, tokenizer, queries=options.queries, attention=options.attention,
                   column_statistics=options.column_statistics, output_weights=options.output_weights, seed=options.seed,
                   overwrite=options.overwrite, directory=directory, occurrence=options.occurrence,
                   **marked_parts(options)) as session:
            session.describe_run("given" if given else str(sampling), options.prefill_chunk, bool(given))
            answers = run(session, generator, options, prompt, notes, known, questions, given)
    finally:
        progress.end()
    report(options, prompt, questions, answers, tokenizer)


def check_length(model, options, prompt_tokens):
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if longest and prompt_tokens + options.max_new_tokens > longest:
        raise TraceError(f"{prompt_tokens} prompt tokens and {options.max_new_tokens} new ones are more than the model's "
                         f"{longest} positions", "--prompt", "Shorten the prompt, or lower --max-new-tokens.")


def report(options, prompt, questions, answers, tokenizer):
    print(f"prompt     {len(prompt)} tokens" + "".join(f" + {len(question)}" for question in questions))
    print("generated  " + " + ".join(str(len(answer)) for answer in answers) + " tokens")
    print(f"wrote      {options.output} ({os.path.getsize(options.output)} bytes)")
    for answer in answers if tokenizer else []:
        text = tokenizer.decode(answer, skip_special_tokens=True)
        print("text       " + printable(text))


def main(arguments):
    return run_command(NAME, parse_arguments, capture, arguments)
