#!/usr/bin/env python3
"""Fills tests/fuzz/corpus from tests/data/io: whole files, cut ones, and ones that lie. Usage: python3 make_corpus.py"""
import glob
import os
import random
import struct
import zlib

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data", "io")


def put(kind, name, content):
    folder = os.path.join(here, "corpus", kind)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(content)


for kind, patterns in {"idx": ["*.idx", "*.idx.gz"], "npy": ["*.npy", "*.npy.gz"], "npz": ["*.npz"],
                       "safetensors": ["*.safetensors"]}.items():
    for pattern in patterns:
        for file in sorted(glob.glob(os.path.join(data, pattern))):
            with open(file, "rb") as f:
                content = f.read()
            put(kind, os.path.basename(file), content)
            if kind in ("npz", "safetensors") or "f4" in file or ".gz" in file:
                put(kind, os.path.basename(file) + ".cut", content[: len(content) * 2 // 3])

put("idx", "huge", struct.pack(">BBBB3I", 0, 0, 8, 3, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF))
put("idx", "type", bytes([0, 0, 7, 1, 0, 0, 0, 1, 0]))


def npy(header):
    header = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)


put("npy", "huge", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (4611686018427387904, 2, 0), }"))
put("npy", "twice", npy("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"))
put("npy", "order", npy('{"shape":(2L,),"fortran_order":True,"descr":"=f4"}'))


def safetensors(header, n):
    header = header.encode()
    return struct.pack("<Q", len(header)) + header + bytes(n)


entry = '"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}'
put("safetensors", "overlap", safetensors("{" + entry % ("a", "F32", "[1]", 0, 4) + "," + entry % ("b", "F32", "[1]", 2, 6) + "}", 6))
put("safetensors", "gap", safetensors("{" + entry % ("a", "F32", "[1]", 4, 8) + "}", 8))
put("safetensors", "overflow", safetensors("{" + entry % ("a", "F4", "[4611686018427387904,8]", 0, 0) + "}", 0))
put("safetensors", "unaligned", safetensors("{" + entry % ("a", "U8", "[1]", 0, 1) + "," + entry % ("b", "F64", "[]", 1, 9) + "}", 9))
put("safetensors", "length", struct.pack("<Q", 2**64 - 1) + b"{}")

yaml = {
    "all": "---\ndata: fashion-mnist\nmodel: lenet\nepochs: 5\nlr: 1e-3\nbetas: [0.9, 0.999]\nshuffle: no\nname: \"a \\\"b\\\"\"\n",
    "flow": "{epochs: 5, model: 'mlp:64,32', betas: [0.5, 0.5]}\n",
    "alias": "epochs: &a 3\nsteps: *a\n",
    "block": "name: |\n  two\n  lines\nproject: >-\n  folded\n  line\n",
    "unknown": "modle: lenet\n",
    "twice": "epochs: 3\nepochs: 4\n",
    "documents": "%YAML 1.1\n---\nepochs: 3\n...\n---\nepochs: 4\n",
    "tag": "epochs: !!int 3\nname: !!str 7\n",
    "unicode": "name: \"\\u2028\\x85 \\xff Größe 数字\"\n",
    "nested": "model:\n  layers:\n    - conv2d: 6\n",
    "cut": "name: \"unfinished",
}
for name, text in yaml.items():
    put("yaml", name, text.encode())
put("yaml", "utf16", "\ufeffepochs: 3\n".encode("utf-16-le"))

# deflate streams of each kind; the first byte chooses how they are fed
random.seed(1)
noise = random.randbytes(3000)
texts = {"empty": b"", "a": b"a", "zeros": bytes(70000), "noise": noise,
         "far": noise + bytes(29000) + noise, "text": open(os.path.join(here, "..", "..", "LICENSE"), "rb").read()[:4000]}
for name, text in texts.items():
    for level, strategy in ((0, 0), (9, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_FIXED), (9, zlib.Z_HUFFMAN_ONLY), (1, zlib.Z_RLE)):
        c = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
        packed = c.compress(text) + c.flush()
        if len(packed) < 5000:
            put("inflate", f"{name}_{level}_{strategy}", bytes([len(packed) % 16]) + packed + b"rest")
put("inflate", "empty_stored", bytes.fromhex("05010000ffff"))
