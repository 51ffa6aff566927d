"""Two runs of one kind, and what is calibrated on the first of them."""
from kvsim_command import SOURCE, CommandTest

MODEL = SOURCE / "traces" / "sample" / "model"


class CalibratedRuns(CommandTest):
    """Two items of a workload, run by the sample model: `a` is calibrated on, `b` is tested."""

    makers = {}  # name of a file to what is calibrated

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_or_stop("workload", "needle-multi-key", "--context", "300", "--count", "2", "--tokenizer", MODEL, "-o", "keys.jsonl")
        for name, line in zip("ab", (cls.folder / "keys.jsonl").read_text().splitlines(keepends=True)):
            (cls.folder / f"{name}.jsonl").write_text(line)
            cls.run_or_stop("capture", "--model", MODEL, "--workload", f"{name}.jsonl", "--max-new-tokens", "4", "-o", f"{name}.h5")
        for name, maker in cls.makers.items():
            cls.run_or_stop("calibrate", maker, "a.h5", "-o", f"{name}.h5")

    @classmethod
    def run_or_stop(cls, *command):
        done = cls.kvsim(*command)
        assert done.returncode == 0, (command, done.stderr)
