"""Writes the groups of a trace that hold its header (traces/format/SCHEMA.md): model, capture, tokenizer, tokens,
segments, passes."""
import hashlib

import numpy as np

from .hdf5_layout import create_group, put_list, put_number, put_text
from .trace_header import path_lengths, segment_begins, token_positions


def write_header(file, model, header):
    _write_model(create_group(file, "model"), model)
    _write_capture(create_group(file, "capture"), header.capture)
    tokenizer = create_group(file, "tokenizer")
    put_text(tokenizer, "name", header.tokenizer_name)
    put_text(tokenizer, "sha256", header.tokenizer_sha256)
    _write_tokens(file, header)
    _write_segments(file, header)
    _write_passes(file, header, model.n_layers)


def _write_model(place, model):
    for name in ("name", "revision", "model_type", "architecture", "rope_type", "rope_layout", "weights_sha256"):
        put_text(place, name, getattr(model, name))
    for name in ("n_layers", "n_q_heads", "n_kv_heads", "head_dim", "v_head_dim", "rotary_dim", "hidden_size",
                 "vocab_size"):
        put_number(place, name, "<u4", getattr(model, name))
    for name in ("attn_scale", "norm_eps", "rope_theta", "rope_attention_factor", "logit_softcap"):
        put_number(place, name, "<f8", getattr(model, name))
    for name in ("qk_norm", "qkv_bias", "tied_embeddings"):
        put_number(place, name, "u1", getattr(model, name))
    put_list(place, "layer_window", "<i4", model.layer_window)
    if model.layer_rotation is None:
        put_list(place, "inv_freq", "<f4", model.inv_freq)
    else:
        put_number(place, "n_rotations", "<u4", len(model.rotation_factor))
        put_list(place, "inv_freq", "<f4", model.inv_freq, (len(model.rotation_factor), -1))
        put_list(place, "rotation_factor", "<f8", model.rotation_factor)
        put_list(place, "layer_rotation", "<u4", model.layer_rotation)
    if model.values_in_keys:
        put_number(place, "first_rotated", "<u4", model.first_rotated)
    if model.sinks is not None:
        put_list(place, "sinks", "<f4", model.sinks, (model.n_layers, model.n_q_heads))
    put_list(place, "config_json", "u1", np.frombuffer(model.config_json, "u1"))


def _write_capture(place, capture):
    for name in ("source", "device_name", "device_kind", "cpu_model", "software", "compute_dtype", "accum_dtype",
                 "math_mode", "attention_kernel", "sampling", "q_policy", "row_policy", "verified"):
        put_text(place, name, getattr(capture, name))
    put_text(place, "layers_kept", "all")
    for name in ("workload", "workload_item", "driver", "cuda_version", "rank"):
        if getattr(capture, name):
            put_text(place, name, getattr(capture, name))
    put_number(place, "threads", "<u4", capture.threads)
    put_number(place, "prefill_chunk", "<u4", capture.prefill_chunk)
    put_number(place, "seed", "<u8", capture.seed)
    put_number(place, "rope_fp32", "u1", capture.rope_fp32)
    put_number(place, "teacher_forced", "u1", capture.teacher_forced)


def _write_tokens(file, header):
    count = len(header.token_id)
    place = create_group(file, "tokens")
    put_number(place, "flags_known", "<u4", header.flags_known)
    put_list(place, "id", "<i4", header.token_id)
    put_list(place, "segment", "<u4", np.repeat(np.arange(len(header.segments)), [s.count for s in header.segments]))
    put_list(place, "position", "<i4", token_positions(header))
    put_list(place, "flags", "<u4", np.zeros(count) if header.token_flags is None else header.token_flags)
    if header.token_logprob is not None:
        put_list(place, "logprob", "<f4", header.token_logprob)
    if header.token_text is not None:
        text = create_group(file, "text")
        put_list(text, "offset", "<u8", np.concatenate([[0], np.cumsum([len(t) for t in header.token_text])]))
        put_list(text, "bytes", "u1", np.frombuffer(b"".join(header.token_text), "u1"))


def _write_segments(file, header):
    token_id = np.ascontiguousarray(header.token_id, dtype="<i4")
    segments, begins = header.segments, segment_begins(header.segments)
    place = create_group(file, "segments")
    for name, dtype in (("parent", "<i4"), ("count", "<u4"), ("phase", "u1"), ("turn", "<u2"), ("role", "u1")):
        put_list(place, name, dtype, [getattr(segment, name) for segment in segments])
    put_list(place, "begin", "<u8", begins[:-1])
    put_list(place, "path_len", "<u4", path_lengths(segments))
    digests = []
    for index, segment in enumerate(segments):
        path = hashlib.sha256(digests[segment.parent] if segment.parent >= 0 else b"")
        path.update(token_id[begins[index]:begins[index + 1]])
        digests.append(path.digest())
    put_list(place, "sha256", "u1", np.frombuffer(b"".join(digests), "u1"), (len(segments), 32))
    leaves = header.sequence_leaf
    if leaves is None:
        leaves = sorted(set(range(len(segments))) - {segment.parent for segment in segments})
    put_list(create_group(file, "sequences"), "leaf", "<u4", leaves)


def _write_passes(file, header, n_layers):
    place = create_group(file, "passes")
    begins, paths = segment_begins(header.segments), path_lengths(header.segments)
    passes = header.passes
    past = [paths[p.segment] + p.begin - begins[p.segment] for p in passes]
    put_list(place, "segment", "<u4", [p.segment for p in passes])
    put_list(place, "begin", "<u8", [p.begin for p in passes])
    put_list(place, "q_len", "<u4", [p.q_len for p in passes])
    put_list(place, "past_len", "<u4", past)
    put_list(place, "phase", "u1", [header.segments[p.segment].phase for p in passes])
    put_list(place, "start_ns", "<i8", [p.start_ns for p in passes])
    put_list(place, "dur_ns", "<i8", [p.dur_ns for p in passes])
    times = {name: getattr(header, name) for name in ("layer_ns", "attn_ns") if getattr(header, name) is not None}
    timing = create_group(file, "timing") if times else None
    for name, values in times.items():
        put_list(timing, name, "<f4", values, (len(passes), n_layers))
