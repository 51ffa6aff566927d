"""Writes trace files from Python, with h5py and NumPy alone."""
