"""Takes rows from the model to the file: copies them off their device and passes them to the single writing thread."""
import queue
import threading

import numpy as np
import torch

ELEMS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
WAITING = 16   # blocks between the model and the file; beyond that the model waits for the disk
GATHERED = 64  # rows of single tokens in a block


def stored_words(rows):
    """The stored words of a CPU tensor as a numpy array."""
    return rows.view(torch.int16).numpy().view(np.uint16) if rows.dtype == torch.bfloat16 else rows.numpy()


class WriterThread:
    """Runs writer.append() and similar calls in order, concurrently with the model. The next call raises an error of
    this thread. The writer belongs to this thread until close().

    Rows of single tokens are gathered on their device, because waking the thread for each would cost more than a step
    of the model."""

    def __init__(self, writer):
        self._writer = writer
        self._queue = queue.Queue(WAITING)
        self._error = None
        self._gathered = {}  # (tensor, layer) -> rows of single tokens
        self._attention = []
        self._streams = {}  # device -> stream for copies, separate from the model's stream
        self._thread = threading.Thread(target=self._run, name="kvsim-capture-writer", daemon=True)
        self._thread.start()

    def append(self, tensor, layer, rows, kept=False):
        """Appends `rows`, [heads, n, dim] on any device. `kept`: nobody changes them, and the step's others are appended, too; else
        rows of a token are copied, since a view would keep the whole cache of this step alive."""
        gathered = self._gathered.setdefault((tensor, layer), [])
        if rows.shape[1] == 1:
            gathered.append(rows if kept else rows.detach().clone())
        if rows.shape[1] == 1 and len(gathered) < GATHERED:
            return
        self._flush_rows(tensor, layer)
        if rows.shape[1] > 1:
            self._put_rows(tensor, layer, rows)

    def append_attention(self, layer, offset, spans, rows):
        """Appends `rows`, [heads, n, keys] float32 over the keys from `offset` on, counted along the path; row i is
        stored for the keys spans[i] = (first, end)."""
        def write(host):
            for row, (first, end) in enumerate(spans):
                self._writer.append_attention(layer, first, host[:, row, first - offset:end - offset])

        self._attention.append((write, *self._to_host(rows)))
        if len(spans) > 1 or len(self._attention) >= GATHERED:
            self._flush_attention()

    def close(self):
        """Waits until everything is written; then the caller may use the writer again."""
        try:
            for tensor, layer in self._gathered:
                self._flush_rows(tensor, layer)
            self._flush_attention()
        finally:
            self.abandon()
        self._raise()

    def abandon(self):
        """Stops without raising an error and drops the rows that are still gathered."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _raise(self):
        if self._error is not None:
            raise self._error

    def _flush_rows(self, tensor, layer):
        gathered = self._gathered[tensor, layer]
        if gathered:
            rows = torch.cat(gathered, 1)
            gathered.clear()
            self._put_rows(tensor, layer, rows)

    def _put_rows(self, tensor, layer, rows):
        self._put([(lambda host: self._writer.append(tensor, layer, host), *self._to_host(rows))])

    def _flush_attention(self):
        if self._attention:
            blocks, self._attention = self._attention, []
            self._put(blocks)

    def _put(self, blocks):
        self._raise()
        self._queue.put(blocks)

    def _to_host(self, rows):
        """(rows in host memory that the model does not change, event after which they are complete or None)"""
        rows = rows.detach()
        if rows.device.type == "cpu":
            return rows.clone(memory_format=torch.contiguous_format), None
        if rows.device.type != "cuda":
            return rows.cpu().contiguous(), None
        current = torch.cuda.current_stream(rows.device)
        if rows.device not in self._streams:
            self._streams[rows.device] = torch.cuda.Stream(rows.device)
        side = self._streams[rows.device]
        rows = rows.contiguous()
        host = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            host.copy_(rows, non_blocking=True)
            rows.record_stream(side)  # keeps its memory until the copy is done
            done = side.record_event()
        return host, done

    def _run(self):
        while (blocks := self._queue.get()) is not None:
            try:
                for write, host, done in blocks if self._error is None else ():  # after an error only empty the queue
                    if done is not None:
                        done.synchronize()
                    write(stored_words(host))
            except BaseException as error:  # noqa: BLE001 - raised in the model's thread
                self._error = error
