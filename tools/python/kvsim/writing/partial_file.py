"""How a trace gets its name, as sim/base/partial_file.hpp does it. It is written as PATH.NNNNNNNN.partial, a name of its
own in the same folder, with random digits, and is renamed to PATH when it is whole. Its writer holds a lock (flock) on it,
which tells a file that is being written from one whose writer was killed."""
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat

from .trace_error import TraceError

AT_FDCWD, RENAME_NOREPLACE = -100, 1


class PartialFile:
    """An empty file for others to open and write under its `name`; libhdf5 must not lock it, since this does. Raises
    TraceError for a PATH that cannot be an output or that another process is writing."""

    def __init__(self, path, overwrite):
        refuse_output(path, overwrite)
        self.path, self._overwrite = os.path.realpath(path) if os.path.islink(path) else path, overwrite
        if not os.path.isdir(os.path.dirname(self.path) or "."):
            raise TraceError("cannot be created: its folder does not exist", path)
        if _sweep(self.path):
            raise TraceError("is being written by another process", self.path)
        while True:
            self.name = f"{self.path}.{secrets.token_hex(4)}.partial"
            try:
                self._file = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            # Another writer of this name may have taken the file for a leftover before it was locked.
            if _locked(self._file) is not False and os.fstat(self._file).st_nlink > 0:
                return
            self.discard()

    def commit(self):
        """Gives the file its name. Whoever wrote it has closed it."""
        os.fsync(self._file)
        if self._overwrite:
            os.rename(self.name, self.path)
        else:
            _rename_if_free(self.name, self.path)
        directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(directory)
        os.close(self._file)

    def discard(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name)
        os.close(self._file)


def refuse_output(path, overwrite):
    """Raises TraceError when no trace can be made at `path`."""
    if not path or path.endswith("/") or os.path.isdir(path):
        raise TraceError("is a directory" if path else "is empty", path or "the name of an output", "Name a file.")
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise TraceError("is a pipe or a device, which cannot be an output", path, "Name a file.")
    if not overwrite and os.path.lexists(path):
        raise TraceError("exists already", path, "Choose another name, or overwrite it on purpose.")


def _locked(descriptor):
    """Whether the file could be locked: False if another process has locked it, None if files cannot be locked here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(path):
    """Whether a process is writing `path`. Removes what killed ones left."""
    folder, name = os.path.split(path)
    pattern, written = re.compile(re.escape(name) + r"\.[0-9a-f]{8}\.partial"), False
    for entry in filter(pattern.fullmatch, os.listdir(folder or ".")):
        partial = os.path.join(folder, entry)
        try:
            descriptor = os.open(partial, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            locked = _locked(descriptor)
            if locked:
                os.unlink(partial)
            written |= locked is False
        finally:
            os.close(descriptor)
    return written


def _rename_if_free(partial, path):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(partial), AT_FDCWD, os.fsencode(path), RENAME_NOREPLACE) == 0:
        return
    failure = ctypes.get_errno()
    if failure in (errno.EINVAL, errno.ENOSYS):  # NFS, for one, cannot do that but has hard links
        try:
            os.link(partial, path)
            os.unlink(partial)
            return
        except FileExistsError:
            failure = errno.EEXIST
    if failure == errno.EEXIST:
        raise TraceError("was written by another process meanwhile, and stays as it is", path,
                         "Choose another name, or overwrite it on purpose.")
    raise OSError(failure, os.strerror(failure), path)
