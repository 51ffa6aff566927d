"""The command line of the commands of this folder: help that begins with examples, exit codes, and hints on misspelt
options."""
import argparse
import difflib
import re
import signal

from .partial_file import refuse_output
from .trace_error import TraceError

USAGE, INPUT, INTERRUPTED = 2, 3, 4  # the exit codes of kvsim


class UsageError(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def __init__(self, name, description, examples):
        super().__init__(prog=name, description=description, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self._examples = examples
        # No option begins with a digit, so -1,20 and -1e3 are values; argparse treats them so from Python 3.14 on.
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def format_help(self):
        return self._examples + "\n" + super().format_help()

    def error(self, message):
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            close = difflib.get_close_matches(unknown[1].split("=")[0], options, 1)
            hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(options)}."
            message = f"unknown option {unknown[1]}\n  {hint}"
        raise UsageError(f"{message}\n  See {self.prog} --help")


def check_output(options):
    """Checks the output path before the work begins."""
    try:
        refuse_output(options.output, options.overwrite)
    except TraceError as error:
        raise UsageError(str(error)) from error


def catch_termination():
    """SIGTERM ends the program as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def natural(least):
    def parse(text):
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"\"{text}\" is not a whole number of at least {least}")
        return int(text)
    return parse


def real(least, most):
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"\"{text}\" is not a number from {least} to {most}")
        return value
    return parse
