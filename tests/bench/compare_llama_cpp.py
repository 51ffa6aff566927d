#!/usr/bin/env python3
"""Processor time of a decoded token: llama.cpp (llama-cpp-python 0.3.36) and kvsim's own runner take turns on the same GGUF file, one
thread, caches in f16, 48 greedy tokens after a prompt of 16.

    compare_llama_cpp.py BENCH_GENERATE MODEL.gguf [ROUNDS]"""
import ctypes
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import llama_cpp  # noqa: E402 - after the environment
import numpy as np  # noqa: E402

STEPS, PROMPT = 48, [(37 * i + 11) % 40000 + 20 for i in range(16)]
FLASH = {"flash attention": 1, "softmax": 0}


@llama_cpp.llama_log_callback
def silent(*_):
    pass


def theirs(model, vocabulary, flash):
    """Seconds of the prompt and of a token after it."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.type_k, params.type_v = 256, 64, 64, 1, 1
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = flash
    context = llama_cpp.llama_init_from_model(model, params)

    def run(ids):
        array = (llama_cpp.llama_token * len(ids))(*ids)  # the batch points into it
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(ids))):
            sys.exit("llama.cpp failed")
        return int(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (vocabulary,)).argmax())

    began = time.process_time()
    token = run(PROMPT)
    prompt, began = time.process_time() - began, time.process_time()
    for _ in range(STEPS):
        token = run([token])
    spent = time.process_time() - began
    llama_cpp.llama_free(context)
    return prompt, spent / STEPS


def main():
    bench, path, rounds = sys.argv[1], sys.argv[2], int((*sys.argv[3:], 7)[0])
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    served = subprocess.Popen([bench, path, "1", "f16"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ours():
        served.stdin.write(f"run {STEPS} {' '.join(map(str, PROMPT))}\n")
        served.stdin.flush()
        prompt, token = map(float, served.stdout.readline().split()[2:4])
        return prompt, token / STEPS

    found = []
    for _ in range(1 + rounds):
        found.append([ours(), *(theirs(model, vocabulary, flash) for flash in FLASH.values())])
    del found[0]  # what is read for the first time
    served.stdin.close()
    print(llama_cpp.llama_print_system_info().decode())
    for index, name in enumerate(FLASH, 1):
        for part, what in enumerate(("prompt", "token")):
            ratios = sorted(of[index][part] / of[0][part] for of in found)
            times = [1e3 * statistics.median(of[where][part] for of in found) for where in (index, 0)]
            print(f"{what}, {name}: llama.cpp / kvsim {statistics.median(ratios):.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f}), "
                  f"{times[0]:.1f} / {times[1]:.1f} ms")


main()
