"""The error of this package."""


class TraceError(Exception):
    """An error that says what is wrong, where, and what to do about it."""

    def __init__(self, what, where="", hint=""):
        super().__init__((f"{where}: " if where else "") + what + (f"\n  {hint}" if hint else ""))
