"""Makes traces of what other programs have recorded."""
