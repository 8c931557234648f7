#!/usr/bin/env python3
"""Writes vectors.json: quantised blocks with the weights they stand for.

Written from the descriptions of the formats, with nothing of the Go code:
blocks are random bytes, unpacked bit by bit; f32 arithmetic is done in
doubles and rounded after each operation. Only the standard library is used.
"""
import json, random, struct

r = random.Random(3)

def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]

def bits(x):
    return struct.unpack('<I', struct.pack('<f', x))[0]

def f16(b):
    return struct.unpack('<e', bytes(b))[0]

def half(x):
    return struct.pack('<e', x)

def bf16(x):  # nearest, ties to even
    u = bits(x)
    low = u & 0xffff
    u >>= 16
    if low > 0x8000 or (low == 0x8000 and u & 1):
        u += 1
    return u

def wide(b):
    return struct.unpack('<f', struct.pack('<I', b << 16))[0]

def rand_bytes(n):
    return bytes(r.randrange(256) for _ in range(n))

def scale():
    return half(r.choice([1, -1]) * r.uniform(2e-5, 0.02))

def signed(b):
    return b - 256 if b > 127 else b

def q8_0():
    b = scale() + rand_bytes(32)
    return b, [f32(f16(b[:2]) * signed(q)) for q in b[2:]]

def q4_0():
    b = scale() + rand_bytes(16)
    n = [q & 15 for q in b[2:]] + [q >> 4 for q in b[2:]]
    return b, [f32(f16(b[:2]) * (q - 8)) for q in n]

def q4_k():
    b = scale() + half(r.uniform(0, 0.02)) + rand_bytes(140)
    d, dmin, p, qs = f16(b[0:2]), f16(b[2:4]), b[4:16], b[16:]
    scales, minima = [], []
    for j in range(8):
        if j < 4:
            scales.append(p[j] % 64)
            minima.append(p[4 + j] % 64)
        else:
            scales.append((p[8 + j - 4] % 16) + 16 * (p[j - 4] // 64))
            minima.append((p[8 + j - 4] // 16) + 16 * (p[4 + j - 4] // 64))
    out = []
    for i in range(256):
        sub = i // 32
        byte = qs[32 * (sub // 2) + i % 32]
        q = byte // 16 if sub % 2 else byte % 16
        out.append(f32(f32(f32(d * scales[sub]) * q) - f32(dmin * minima[sub])))
    return b, out

def q6_k():
    b = rand_bytes(208) + scale()
    ql, qh, sc, d = b[:128], b[128:192], b[192:208], f16(b[208:])
    out = []
    for i in range(256):
        half_, j = divmod(i, 128)
        quarter, l = divmod(j, 32)
        low = ql[64 * half_ + 32 * (quarter % 2) + l]
        low = low % 16 if quarter < 2 else low // 16
        high = qh[32 * half_ + l] // 4 ** quarter % 4
        out.append(f32(f32(d * signed(sc[i // 16])) * (low + 16 * high - 32)))
    return b, out

def affine(width, group, w):
    """Returns words, scale, bias as MLX's mx.quantize does for one group."""
    top = 2 ** width - 1
    low, high = min(w), max(w)
    s = max(f32(f32(high - low) / top), f32(1e-7))
    edge = low if abs(low) > abs(high) else high
    if not abs(low) > abs(high):
        s = -s
    n = round(f32(edge / s))  # half to even
    bias = 0.0
    if n != 0:
        s, bias = f32(edge / n), edge
    q = [min(max(round(f32(f32(v - bias) / s)), 0), top) for v in w]
    per = 32 // width
    words = b''
    for i in range(0, group, per):
        word = 0
        for k in range(per):
            word |= q[i + k] << (k * width)
        words += struct.pack('<I', word)
    sb, bb = bf16(s), bf16(bias)
    return words, sb, bb, [f32(f32(x * wide(sb)) + wide(bb)) for x in q]

out = {'blocks': [], 'affine': []}
for name, make in (('q8_0', q8_0), ('q4_0', q4_0), ('q4_k', q4_k), ('q6_k', q6_k)):
    for _ in range(2):
        b, w = make()
        out['blocks'].append({'format': name, 'data': b.hex(), 'weights': [bits(x) for x in w]})
for width in (4, 8):
    for group in (32, 64, 128):
        for kind in range(4):
            w = [f32(r.gauss(0, 0.02)) for _ in range(group)]
            if kind == 1:
                w = [abs(x) for x in w]
            if kind == 2:
                w = [wide(bf16(f32(x - 0.05))) for x in w]
            if kind == 3:
                w = [f32(0.25)] * group if width == 4 else [0.0] * group
            words, sb, bb, back = affine(width, group, w)
            out['affine'].append({'bits': width, 'group': group, 'source': [bits(x) for x in w], 'data': words.hex(),
                                  'scale': sb, 'bias': bb, 'weights': [bits(x) for x in back]})
with open(__file__.rsplit('/', 1)[0] + '/vectors.json', 'w') as f:
    json.dump(out, f, separators=(',', ':'))
    f.write('\n')
