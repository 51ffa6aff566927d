"""Packages whose parts are loaded when they are first used."""
import importlib


def attributes_at(package, homes):
    """A package's `__getattr__`. homes: of each name the module that has it, as seen from the package."""
    def attribute(name):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name], package), name)
    return attribute
