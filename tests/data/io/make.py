#!/usr/bin/env python3
"""Writes the files that tests/test_io_*.c and the fuzz targets start from, with NumPy and the safetensors package.

Element i (in C order) is 3 i - 7 for integers (modulo their size if unsigned), (i - 5) / 4 for floats, i odd for bools.
Usage: python3 make.py   (needs numpy, safetensors, torch; the same versions give the same bytes)
"""
import gzip
import os
import struct
import zipfile

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

folder = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(folder, name)


def values(dtype, shape):
    n = int(np.prod(shape))
    i = np.arange(n)
    if dtype.kind == "f":
        v = (i - 5) / 4
    elif dtype.kind == "b":
        v = i % 2
    elif dtype.kind == "u":
        v = (3 * i - 7) % 256 if dtype.itemsize == 1 else abs(3 * i - 7)
    else:
        v = 3 * i - 7
    return v.astype(dtype).reshape(shape)


def write_npy(name, array, version):
    with open(path(name), "wb") as f:
        np.lib.format.write_array(f, array, version=version)


for kind in ("f2", "f4", "f8", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
    for end, order in (("<", "C"), (">", "F")):
        a = np.asarray(values(np.dtype(end + kind), (2, 3, 4)), order=order)
        write_npy(f"{kind}_{'le_c' if end == '<' else 'be_f'}.npy", a, (1, 0))
f4 = values(np.dtype("<f4"), (2, 3))
write_npy("v2.npy", f4, (2, 0))
write_npy("v3.npy", f4, (3, 0))
write_npy("scalar.npy", np.float32(-1.25), (1, 0))
write_npy("empty.npy", np.zeros((0, 3), "<f4"), (1, 0))
write_npy("vector.npy", values(np.dtype("<f8"), (5,)), (1, 0))
write_npy("complex.npy", np.zeros(2, "<c8"), (1, 0))
write_npy("record.npy", np.zeros(2, [("a", "<f4")]), (1, 0))
write_npy("text.npy", np.array(["a", "bc"]), (1, 0))
write_npy("huge_u8.npy", np.array([1, 2**63], "<u8"), (1, 0))
with open(path("f4_le_c.npy"), "rb") as f, gzip.GzipFile(path("gzipped.npy.gz"), "wb", mtime=0) as g:
    g.write(f.read())

for code, kind in ((8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")):
    a = values(np.dtype(kind), (2, 3, 4))
    data = struct.pack(">BBBB3I", 0, 0, code, 3, *a.shape) + a.tobytes()
    with open(path(f"{kind.strip('>')}.idx"), "wb") as f:
        f.write(data)
    if code == 8:
        with gzip.GzipFile(path("u1.idx.gz"), "wb", mtime=0) as g:
            g.write(data)
        with open(path("two_members.idx.gz"), "wb") as f:  # concatenated gzip members are one stream
            f.write(gzip.compress(data[:20], mtime=0) + gzip.compress(data[20:], mtime=0))


def write_zip(name, method, arrays, zip64=False):
    with zipfile.ZipFile(path(name), "w", method) as z:
        for key, a in arrays.items():
            info = zipfile.ZipInfo(key + ".npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            with z.open(info, "w", force_zip64=zip64) as f:
                np.lib.format.write_array(f, a)


arrays = {"x": values(np.dtype("<f4"), (6, 3)), "y": np.arange(6) % 3, "bytes": values(np.dtype("u1"), (300,))}
np.savez(path("numpy.npz"), **arrays)
write_zip("stored.npz", zipfile.ZIP_STORED, arrays)
write_zip("deflated.npz", zipfile.ZIP_DEFLATED, arrays)
write_zip("zip64.npz", zipfile.ZIP_DEFLATED, arrays, zip64=True)
write_zip("bzip2.npz", zipfile.ZIP_BZIP2, {"x": arrays["x"]})
zipfile.ZIP64_LIMIT, limit = 1, zipfile.ZIP64_LIMIT  # a zip64 end record and 64-bit sizes in the directory
write_zip("zip64_end.npz", zipfile.ZIP_STORED, {"x": arrays["x"]}, zip64=True)
zipfile.ZIP64_LIMIT = limit

save_file({"weight": values(np.dtype("<f4"), (2, 3)), "count": np.array(7), "half": values(np.dtype("<f2"), (4,)),
           "mask": values(np.dtype("b1"), (3,)), "tiny": values(np.dtype("i1"), (2,)), "none": np.zeros((0, 2), "f4")},
          path("numpy.safetensors"), {"model": "lenet", "note": 'a "quoted" word'})
save_torch({"b": torch.arange(-5, 1).to(torch.bfloat16).div(4).reshape(2, 3)}, path("bf16.safetensors"))
