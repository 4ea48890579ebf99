#!/usr/bin/env python3
"""Writes data/digits/*.gz from scikit-learn's copy of the UCI optical digits: of each class every fifth sample is for the test.

Usage: python3 make_digits.py   (needs scikit-learn; the same input gives the same bytes)
"""
import gzip
import os
import struct

import numpy as np
from sklearn.datasets import load_digits


def write_idx(path, array):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(struct.pack(">BBBB", 0, 0, 0x08, array.ndim))
        out.write(struct.pack(">" + "I" * array.ndim, *array.shape))
        out.write(array.astype(np.uint8).tobytes())


digits = load_digits()
images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
test = np.zeros(len(labels), bool)
for c in range(10):
    test[np.flatnonzero(labels == c)[4::5]] = True
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits")
os.makedirs(folder, exist_ok=True)
for name, chosen in (("train", ~test), ("t10k", test)):
    write_idx(os.path.join(folder, name + "-images-idx3-ubyte.gz"), images[chosen])
    write_idx(os.path.join(folder, name + "-labels-idx1-ubyte.gz"), labels[chosen])
    print(name, images[chosen].shape, np.bincount(labels[chosen]))
