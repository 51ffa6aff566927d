"""The random numbers of sim/base/rng.hpp, bit for bit: a draw is a function of its keys alone."""

BITS = (1 << 64) - 1


def _mix(x):
    """SplitMix64's finaliser."""
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS
    return x ^ (x >> 31)


def combine(*keys):
    """Combines several keys into one; their order matters."""
    state = 0x243F6A8885A308D3
    for key in keys:
        state = _mix(state ^ _mix(key))
    return state


def key_of(name):
    """Key of a name (FNV-1a)."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & BITS
    return state


def uniform01(key):
    """Uniform in [0, 1), 53 bits."""
    return (_mix(key) >> 11) * 2.0 ** -53
