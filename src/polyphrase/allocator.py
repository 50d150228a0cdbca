"""How the C library hands out memory: one setting that takes a quarter off on a processor."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_NEVER = 2**30  # bytes


def keep_big_buffers() -> bool:
    """Let glibc keep the memory of freed tensors for the next ones, for this whole process.

    By default it returns every large buffer to the kernel and asks for it again at the next step,
    which clears each page first: a quarter to a third of the time of decoding and of training. The
    price is that memory once used stays with the process. The command line does this for itself; a
    program that uses the library calls it once, before the first tensor.

    Returns:
        False where the C library is another one; nothing has changed then.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc, not Linux
        return False
    return bool(set_option(_M_TRIM_THRESHOLD, _NEVER) & set_option(_M_MMAP_THRESHOLD, _NEVER))
