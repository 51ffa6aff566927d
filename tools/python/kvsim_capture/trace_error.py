"""The one error of this package."""


class TraceError(Exception):
    """What is wrong, where, and what to do about it."""

    def __init__(self, what, where="", hint=""):
        super().__init__((f"{where}: " if where else "") + what + (f"\n  {hint}" if hint else ""))
