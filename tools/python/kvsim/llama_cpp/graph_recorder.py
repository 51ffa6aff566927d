"""Takes queries, keys and values out of llama.cpp's graph while it computes. What a tensor is follows from the operation that makes
or reads it, not from names that a model's code gives: keys and values are what SET_ROWS puts into the cache, queries what
FLASH_ATTN_EXT, or the product with the cache's keys, reads."""
import collections
import ctypes
from dataclasses import dataclass

import llama_cpp
import numpy as np

from .ggml_rope import Rotation, rotation_of
from .ggml_tensor import Tensor, floats_of, operations, read, read_rows, type_of
from ..writing.trace_error import TraceError

KEYS, VALUES = b"cache_k_l", b"cache_v_l"  # the cache's own names, followed by the layer
TURNED = (b"attn_inp_k_rot", b"attn_inp_v_rot")  # what queries and keys, or values, are multiplied by before a quantised cache


@dataclass
class LayerFacts:
    """What the graph says of a layer's attention. `cells`: of its cache. `latent`: values are the first components of keys."""
    q_heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    scale: float = 0.0
    rotation: Rotation = None
    cells: int = 0
    latent: bool = False


class GraphRecorder:
    """`callback` goes into llama_context_params.cb_eval. Around each llama_decode of `count` tokens of one sequence, the caller says
    begin(count) and end(); then taken() has the tensors of each layer. `read_types`: the types of keys and values that attention
    reads. `flash`: whether that is flash attention. `visible`: how many keys the last token of the pass sees, by layer."""

    def __init__(self):
        self.callback = llama_cpp.ggml_backend_sched_eval_callback(self._call)
        self.layers, self.rows, self.read_types, self.visible = {}, {}, set(), {}
        (self._set_rows, self._flash, self._product, self._softmax, self._rope,
         self._concat) = operations("SET_ROWS", "FLASH_ATTN_EXT", "MUL_MAT", "SOFT_MAX", "ROPE", "CONCAT")
        self._count = self._passes = 0
        self._products = {}  # address of a product of keys and queries -> its layer
        self.flash = False
        self._error = None
        self._matrix = {}  # of the cache's own rotation, by its name

    def begin(self, count):
        self._count, self._passes = count, self._passes + 1
        self.rows, self._products = collections.defaultdict(dict), {}

    def end(self):
        if self._error is not None:
            raise self._error

    def _call(self, address, ask, _):
        # An exception must not cross ggml, and False as the second answer would end the pass without a word.
        if self._error is not None:
            return not ask
        try:
            tensor = Tensor.from_address(address)
            taken = self._taken_by(tensor)
            if ask or taken is None:
                return taken is not None
            taken(tensor)
        except Exception as error:  # noqa: BLE001 - raised by end()
            self._error = error
        return True

    def _taken_by(self, tensor):
        """What takes this operation's tensors; None if nothing does."""
        operation = tensor.op
        if operation == self._set_rows:
            return self._stored if tensor.view_src and tensor.view_src.contents.name.startswith((KEYS, VALUES)) else None
        if operation == self._flash:
            return self._attended
        if operation == self._product:
            keys = tensor.src[0].contents
            return self._multiplied if keys.view_src and keys.view_src.contents.name.startswith(KEYS) else None
        return self._weighed if operation == self._softmax and self._products else None

    def _stored(self, tensor):
        """Rows for the cache. What is taken is what the cache holds then, rounded or quantised, since attention reads that."""
        name, elem = tensor.view_src.contents.name, type_of(tensor)
        layer, kind = int(name[len(KEYS):]), "v" if name.startswith(VALUES) else "k"
        if tensor.ne[0] == 1:  # values transposed: every element is a row; the writer rounds them
            rows = read(tensor.src[0].contents).reshape(self._count, -1)
            self.read_types.add(elem)
        else:
            rows = read_rows(tensor, read(tensor.src[1].contents).ravel())
        if kind in self.rows[layer]:
            raise TraceError(f"layer {layer} writes its cache twice in a pass", "llama.cpp", "This architecture is not recorded.")
        facts = self.layers.setdefault(layer, LayerFacts())
        if kind == "k" and facts.rotation is None:
            facts.rotation, facts.cells = self._rotation_before(tensor.src[0].contents), tensor.view_src.contents.ne[1]
        self._find_matrix(tensor.src[0].contents, TURNED[kind == "v"])
        self.rows[layer][kind] = rows

    def _attended(self, tensor):
        keys, values = _behind_casts(tensor.src[1].contents), _behind_casts(tensor.src[2].contents)
        if not (keys.view_src and keys.view_src.contents.name.startswith(KEYS)):
            return  # attention over something else than the cache, as of an encoder
        layer = self._asked(keys, tensor.src[0].contents)
        facts, self.flash = self.layers[layer], True
        self.read_types |= {type_of(tensor.src[1].contents), type_of(tensor.src[2].contents)}
        facts.v_head_dim = values.ne[0]
        facts.latent = values.view_src.contents.name.startswith(KEYS)
        scale, slopes, cap = (float(value) for value in floats_of(tensor)[:3])
        self._weights(layer, scale, slopes, cap, tensor.src[3], tensor.src[4])

    def _multiplied(self, tensor):
        self.read_types.add(type_of(tensor.src[0].contents))
        self._products[ctypes.addressof(tensor)] = self._asked(tensor.src[0].contents, tensor.src[1].contents)

    def _weighed(self, tensor):
        layer = self._products.pop(ctypes.addressof(tensor.src[0].contents), None)
        if layer is None:
            raise TraceError("something stands between q k and its softmax, such as a cap on logits", "llama.cpp",
                             "A replay would compute another attention, so such models are not recorded.")
        scale, slopes = (float(value) for value in floats_of(tensor)[:2])
        self._weights(layer, scale, slopes, 0.0, tensor.src[1], tensor.src[2])

    def _asked(self, keys, queries):
        """Takes the queries that read `keys`, and returns the layer."""
        layer = int(keys.view_src.contents.name[len(KEYS):])
        if "q" in self.rows[layer]:
            raise TraceError(f"several layers read the cache of layer {layer}", "llama.cpp", "This architecture is not recorded.")
        rows = read(queries)  # [streams, heads, tokens, dim]
        if rows.shape[0] != 1 or rows.shape[2] != self._count:
            raise TraceError(f"layer {layer} asks for {rows.shape[2]} tokens in {rows.shape[0]} streams, not for {self._count} in one",
                             "llama.cpp")
        self._find_matrix(queries, TURNED[0])
        facts = self.layers.setdefault(layer, LayerFacts())
        facts.q_heads, facts.kv_heads, facts.head_dim = rows.shape[1], keys.ne[2], rows.shape[3]
        self.rows[layer]["q"] = rows[0]
        return layer

    def _weights(self, layer, scale, slopes, cap, mask, sinks):
        refused = "slopes (ALiBi)" if slopes else "a cap on logits" if cap else "attention sinks" if sinks else None
        if refused:
            raise TraceError(f"layer {layer} has {refused}: attention is more than softmax(scale q k)", "llama.cpp",
                             "A replay would compute another attention, so such models are not recorded.")
        self.layers[layer].scale = scale
        if not mask:
            raise TraceError(f"layer {layer} has no mask: attention that is not causal is not recorded", "llama.cpp")
        mask = mask.contents
        last = read(mask).reshape(-1, mask.ne[0])[self._count - 1]
        self.visible[layer] = int((last > -np.inf).sum())

    def _rotation_before(self, keys):
        """The rotation that made these keys."""
        first, tensor = 0, keys
        while tensor.op != self._rope:
            inputs = [source.contents for source in tensor.src if source]
            if tensor.op == self._concat and tensor.op_params[0] == 0:  # turned and other components side by side
                first, tensor = (inputs[0].ne[0], inputs[1]) if self._leads_to_rope(inputs[1]) else (0, inputs[0])
            elif tensor.op == self._product:
                if inputs[0].name != TURNED[0]:
                    return Rotation()
                tensor = inputs[1]
            elif not inputs:
                return Rotation()
            else:
                tensor = inputs[0]
        factors = read(tensor.src[2].contents).ravel() if tensor.src[2] else None
        return rotation_of(list(tensor.op_params), factors, first)

    def _leads_to_rope(self, tensor):
        while tensor.op != self._rope:
            if tensor.op in (self._product, self._concat) or not tensor.src[0]:
                return False
            tensor = tensor.src[0].contents
        return True

    def _find_matrix(self, tensor, name):
        """Keeps the matrix that the cache's own rotation multiplied these rows by, if it did."""
        while self._passes == 1 and name not in self._matrix:
            if not tensor.src[0]:
                return
            if tensor.op == self._product:
                if tensor.src[0].contents.name == name:
                    self._matrix[name] = read(tensor.src[0].contents)[0, 0].astype("f8")
                return
            tensor = tensor.src[0].contents

    def taken(self, layer, kind, rows=None):
        """Rows of q, k or v of a layer: [heads, count, dim], turned as kvsim has it and with the cache's own rotation undone. rows: of
        the cache, [count, heads * dim], instead of those of the pass."""
        facts = self.layers[layer]
        rows = self.rows[layer]["k" if kind == "v" and facts.latent else kind] if rows is None else rows
        if kind != "q":
            rows = rows.reshape(len(rows), facts.kv_heads, -1).transpose(1, 0, 2)
        matrix = self._matrix.get(TURNED[kind == "v" and not facts.latent])
        if matrix is not None:  # it is orthogonal, so its transpose takes it back: rows had been multiplied by its transpose
            rows = (rows.reshape(*rows.shape[:2], -1, len(matrix)) @ matrix).reshape(rows.shape).astype("<f4")
        if kind == "v":
            return rows[..., :facts.v_head_dim or None]
        return facts.rotation.half_split(rows)


def _behind_casts(tensor):
    """The view of the cache that was cast to another type; the tensor itself if it was not."""
    while not tensor.view_src and tensor.src[0]:
        tensor = tensor.src[0].contents
    return tensor
