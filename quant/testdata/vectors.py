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

# The formats below are decoded element by element: each formula says where the
# bits of element i of a block lie.

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

def field(b, at, low, width):
    """bits low..low+width of the little-endian number that begins at byte at"""
    return int.from_bytes(b[at:], 'little') >> low & 2 ** width - 1

def nibble(b, at, i):  # of a block of 32: 16 low halves, then 16 high ones
    return field(b, at + i % 16, 4 * (i // 16), 4)

def q4_1():
    b = scale() + half(r.uniform(-0.1, 0)) + rand_bytes(16)
    return b, [f32(f32(f16(b[:2]) * nibble(b, 4, i)) + f16(b[2:4])) for i in range(32)]

def q5_0():
    b = scale() + rand_bytes(20)
    return b, [f32(f16(b[:2]) * (nibble(b, 6, i) + 16 * field(b, 2, i, 1) - 16)) for i in range(32)]

def q5_1():
    b = scale() + half(r.uniform(-0.1, 0)) + rand_bytes(20)
    return b, [f32(f32(f16(b[:2]) * (nibble(b, 8, i) + 16 * field(b, 4, i, 1))) + f16(b[2:4])) for i in range(32)]

def iq4_nl():
    b = scale() + rand_bytes(16)
    return b, [f32(f16(b[:2]) * IQ4[nibble(b, 2, i)]) for i in range(32)]

def iq4_xs():
    b = scale() + rand_bytes(134)
    def weight(i):
        j = i // 32
        s = field(b, 4, 4 * j, 4) + 16 * field(b, 2, 2 * j, 2) - 32
        return f32(f32(f16(b[:2]) * s) * IQ4[nibble(b, 8 + 16 * j, i % 32)])
    return b, [weight(i) for i in range(256)]

def two_bits(b, at, i):  # 32 bytes for 128 elements, 2 bits further up every 32
    return field(b, at + 32 * (i // 128) + i % 32, 2 * (i // 32 % 4), 2)

def q2_k():
    b = rand_bytes(80) + scale() + half(r.uniform(0, 0.02))
    d, dmin = f16(b[80:82]), f16(b[82:84])
    return b, [f32(f32(f32(d * field(b, i // 16, 0, 4)) * two_bits(b, 16, i)) - f32(dmin * field(b, i // 16, 4, 4))) for i in range(256)]

def q3_k():
    b = rand_bytes(108) + scale()
    def weight(i):
        g = i // 16
        s = field(b, 96 + g % 8, 4 * (g // 8), 4) + 16 * field(b, 104 + g % 4, 2 * (g // 4), 2) - 32
        q = two_bits(b, 32, i) + 4 * field(b, i % 32, i // 32, 1) - 4
        return f32(f32(f16(b[108:]) * s) * q)
    return b, [weight(i) for i in range(256)]

def q5_k():
    b = scale() + half(r.uniform(0, 0.02)) + rand_bytes(172)
    def weight(i):
        j = i // 32
        if j < 4:
            s, m = field(b, 4 + j, 0, 6), field(b, 8 + j, 0, 6)
        else:
            s = field(b, 8 + j, 0, 4) + 16 * field(b, j, 6, 2)
            m = field(b, 8 + j, 4, 4) + 16 * field(b, 4 + j, 6, 2)
        q = field(b, 48 + 32 * (j // 2) + i % 32, 4 * (j % 2), 4) + 16 * field(b, 16 + i % 32, j, 1)
        return f32(f32(f32(f16(b[:2]) * s) * q) - f32(f16(b[2:4]) * m))
    return b, [weight(i) for i in range(256)]

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
for make in (q4_1, q5_0, q5_1, q2_k, q3_k, q5_k, iq4_nl, iq4_xs):
    for _ in range(2):
        b, w = make()
        out['blocks'].append({'format': make.__name__, 'data': b.hex(), 'weights': [bits(x) for x in w]})
with open(__file__.rsplit('/', 1)[0] + '/vectors.json', 'w') as f:
    json.dump(out, f, separators=(',', ':'))
    f.write('\n')
