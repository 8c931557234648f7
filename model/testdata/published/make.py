#!/usr/bin/env python3
"""Writes the folders beside it: tiny models in the forms that quantised
safetensors are published in, each with the SHA-256 of every weight in f32.

Written from the formats' descriptions, with nothing of the Go code. Numbers
are drawn, packed, and read back bit by bit; a weight is (q - zero) * scale, or
float8 * scale, in f32, computed from what was drawn. Needs NumPy.

    python3 make.py
"""
import hashlib, json, os, struct
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i of a word is column 8c + ORDER[i]


def f32(x):
    return np.asarray(x, np.float32)


def to_bf16(x):
    """The upper halves of f32, nearest, ties to even."""
    u = f32(x).view(np.uint32).astype(np.uint64)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(b):
    return (b.astype(np.uint32) << 16).view(np.float32)


def pack(q, bits, axis, order=None):
    """Packs numbers along an axis into words, low bits first."""
    n = 32 // bits
    q = np.moveaxis(q, axis, -1).astype(np.uint32)
    q = q.reshape(q.shape[:-1] + (q.shape[-1] // n, n))
    words = np.zeros(q.shape[:-1], np.uint32)
    for i in range(n):
        words |= q[..., order[i] if order else i] << np.uint32(bits * i)
    return np.moveaxis(words, -1, axis)


def number(words, bits, axis, at, order=None):
    """Element at = (row, column) of what words hold along an axis."""
    n = 32 // bits
    place = list(at)
    i = place[axis] % n
    place[axis] //= n
    i = order.index(i) if order else i
    return int(words[tuple(place)]) >> (bits * i) & ((1 << bits) - 1)


def float8(b):
    """E4M3: a sign, 4 bits of exponent with a bias of 7, 3 of fraction."""
    sign = -1.0 if b & 0x80 else 1.0
    e, m = b >> 3 & 15, b & 7
    if e == 15 and m == 7:
        return float('nan')
    return sign * (m * 2.0**-9 if e == 0 else (8 + m) * 2.0**(e - 10))


class Model:
    """Collects a checkpoint: tensors as stored, and each weight in f32."""

    def __init__(self, name, seed, entry, arch='qwen3', hidden=128, inner=128, shards=1, half='F16'):
        self.name, self.entry, self.arch, self.shards, self.half = name, entry, arch, shards, half
        self.hidden, self.inner, self.heads, self.kv, self.dim, self.vocab = hidden, inner, 2, 1, 64, 64
        self.r = np.random.default_rng(seed)
        self.tensors, self.weights = [], {}

    def store(self, name, dtype, x):
        self.tensors.append((name, dtype, list(x.shape), np.ascontiguousarray(x).tobytes()))

    def stored_scale(self, shape, size, bf16=False):
        """Draws scales; returns them as stored and in f32."""
        s = size * self.r.uniform(0.5, 1.5, shape)
        if bf16:
            b = to_bf16(s)
            return 'BF16', b, from_bf16(b)
        h = s.astype(np.float16)
        return 'F16', h, f32(h)

    def plain(self, name, shape, scale, about=0.0):
        x = about + scale * self.r.standard_normal(shape)
        if self.half == 'BF16':
            stored = to_bf16(x)
            self.weights[name] = from_bf16(stored)
        else:
            stored = x.astype(np.float16)
            self.weights[name] = f32(stored)
        self.store(name, self.half, stored)

    def groups(self, out, inp, bits, group, symmetric, lowest_zero=0):
        """Draws numbers [out, in] and zeros [out, groups]."""
        g = inp // group
        q = self.r.integers(0, 1 << bits, (out, inp))
        z = np.full((out, g), 1 << (bits - 1))
        if not symmetric:
            z = self.r.integers(lowest_zero, 1 << bits, (out, g))
        return q, z, 0.02 * 2.0 ** (4 - bits)

    def wide(self, q, z, s, group):
        """(q - z) * s in f32, all three by output."""
        return f32(q - np.repeat(z, group, 1)) * np.repeat(s, group, 1)

    def awq(self, m, out, inp, group=64):
        q, z, size = self.groups(out, inp, 4, group, False)
        dtype, stored, s = self.stored_scale((out, inp // group), size)
        words, zeros = pack(q.T, 4, 1, AWQ_ORDER), pack(z.T, 4, 1, AWQ_ORDER)
        for i, o in [(0, 0), (3, 1), (inp - 1, out - 3), (7, 13)]:
            assert number(words, 4, 1, (i, o), AWQ_ORDER) == q[o, i]
        self.store(m + '.qweight', 'I32', words)
        self.store(m + '.qzeros', 'I32', zeros)
        self.store(m + '.scales', dtype, stored.T)
        self.weights[m + '.weight'] = self.wide(q, z, s, group)

    def gptq(self, m, out, inp, bits, group, symmetric, version, g_idx=True):
        group = inp if group < 0 else group
        # In version 1 a zero of 0 would be stored as -1, which no reader agrees on.
        q, z, size = self.groups(out, inp, bits, group, symmetric, 1 if version == 1 else 0)
        dtype, stored, s = self.stored_scale((out, inp // group), size)
        words = pack(q.T, bits, 0)
        zeros = pack((z - (1 if version == 1 else 0)).T, bits, 1)
        for i, o in [(0, 0), (3, 1), (inp - 1, out - 3), (9, 13)]:
            assert number(words, bits, 0, (i, o)) == q[o, i]
        self.store(m + '.qweight', 'I32', words)
        self.store(m + '.qzeros', 'I32', zeros)
        self.store(m + '.scales', dtype, stored.T)
        if g_idx:
            self.store(m + '.g_idx', 'I32', (np.arange(inp) // group).astype(np.int32))
        self.weights[m + '.weight'] = self.wide(q, z, s, group)

    def packed(self, m, out, inp, bits, group, symmetric, bf16):
        """compressed-tensors: signed numbers, stored with half of the range added."""
        group = inp if group < 0 else group
        q, z, size = self.groups(out, inp, bits, group, symmetric)
        dtype, stored, s = self.stored_scale((out, inp // group), size, bf16)
        words = pack(q, bits, 1)
        for o, i in [(0, 0), (1, 3), (out - 3, inp - 1), (13, 9)]:
            assert number(words, bits, 1, (o, i)) == q[o, i]
        self.store(m + '.weight_packed', 'I32', words)
        self.store(m + '.weight_scale', dtype, stored)
        self.store(m + '.weight_shape', 'I64', np.array([out, inp], np.int64))
        if not symmetric:
            self.store(m + '.weight_zero_point', 'I32', pack(z, bits, 0))
        self.weights[m + '.weight'] = self.wide(q, z, s, group)

    def fp8(self, m, out, inp, block, scale_name, dtype='BF16'):
        rows, cols = (out if block[0] < 0 else block[0]), (inp if block[1] < 0 else block[1])
        shape = (-(-out // rows), -(-inp // cols))
        codes = self.r.integers(0, 256, (out, inp)).astype(np.uint8)
        codes[codes & 0x7f == 0x7f] = 0x80  # NaN; and the ends of the range stay in
        table = f32([float8(b) for b in range(256)])
        s = 3e-4 * self.r.uniform(0.5, 1.5, shape)
        stored = to_bf16(s) if dtype == 'BF16' else f32(s)
        s = from_bf16(stored) if dtype == 'BF16' else stored
        self.store(m + '.weight', 'F8_E4M3', codes)
        self.store(m + scale_name, dtype, stored)
        wide = np.repeat(np.repeat(s, rows, 0)[:out], cols, 1)[:, :inp]
        self.weights[m + '.weight'] = table[codes] * wide

    def build(self, module):
        """module(name, out, in) stores a projection."""
        h, f, qd, kvd = self.hidden, self.inner, self.heads * self.dim, self.kv * self.dim
        self.plain('model.embed_tokens.weight', (self.vocab, h), 0.5)
        for i in range(2):
            at = 'model.layers.%d.' % i
            self.plain(at + 'input_layernorm.weight', (h,), 0.1, 1)
            for name, out, inp in [('self_attn.q_proj', qd, h), ('self_attn.k_proj', kvd, h), ('self_attn.v_proj', kvd, h), ('self_attn.o_proj', h, qd),
                                   ('mlp.gate_proj', f, h), ('mlp.up_proj', f, h), ('mlp.down_proj', h, f)]:
                module(at + name, out, inp)
                if self.arch == 'qwen2' and name[-6] in 'qkv' and 'self_attn.o' not in name:
                    self.plain(at + name + '.bias', (out,), 0.2)
            if self.arch == 'qwen3':
                self.plain(at + 'self_attn.q_norm.weight', (self.dim,), 0.1, 1)
                self.plain(at + 'self_attn.k_norm.weight', (self.dim,), 0.1, 1)
            self.plain(at + 'post_attention_layernorm.weight', (h,), 0.1, 1)
        self.plain('model.norm.weight', (h,), 0.1, 1)
        self.plain('lm_head.weight', (self.vocab, h), 0.1)
        self.write()

    def write(self):
        folder = os.path.join(HERE, self.name)
        os.makedirs(folder, exist_ok=True)
        config = {
            'architectures': ['Qwen3ForCausalLM' if self.arch == 'qwen3' else 'Qwen2ForCausalLM'], 'model_type': self.arch,
            'hidden_size': self.hidden, 'intermediate_size': self.inner, 'num_hidden_layers': 2, 'num_attention_heads': self.heads,
            'num_key_value_heads': self.kv, 'head_dim': self.dim, 'vocab_size': self.vocab, 'max_position_embeddings': 256,
            'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'hidden_act': 'silu', 'tie_word_embeddings': False,
            'torch_dtype': 'float16' if self.half == 'F16' else 'bfloat16', 'quantization_config': self.entry,
        }
        with open(os.path.join(folder, 'config.json'), 'w') as f:
            json.dump(config, f, indent=2)
            f.write('\n')
        index = {}
        for i in range(self.shards):
            name = 'model.safetensors' if self.shards == 1 else 'model-%05d-of-%05d.safetensors' % (i + 1, self.shards)
            header, body = {'__metadata__': {'format': 'pt'}}, b''
            # A module's parts fall into different shards.
            for t, dtype, shape, data in self.tensors[i::self.shards]:
                header[t] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
                body += data
                index[t] = name
            text = json.dumps(header).encode()
            text += b' ' * (-len(text) % 8)
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(struct.pack('<Q', len(text)) + text + body)
        if self.shards > 1:
            with open(os.path.join(folder, 'model.safetensors.index.json'), 'w') as f:
                json.dump({'metadata': {}, 'weight_map': index}, f, indent=2)
                f.write('\n')
        sums = {n: hashlib.sha256(np.ascontiguousarray(w, np.float32).tobytes()).hexdigest() for n, w in sorted(self.weights.items())}
        with open(os.path.join(folder, 'reference.json'), 'w') as f:
            json.dump(sums, f, indent=1)
            f.write('\n')


def compressed(weights, fmt, activations=None):
    return {'quant_method': 'compressed-tensors', 'format': fmt, 'quantization_status': 'compressed', 'kv_cache_scheme': None, 'ignore': ['lm_head'],
            'config_groups': {'group_0': {'targets': ['Linear'], 'weights': dict(weights, dynamic=False, observer='minmax'), 'input_activations': activations,
                                          'output_activations': None}}}


kept = 'model.layers.1.mlp.down_proj'

m = Model('awq', 1, {'quant_method': 'awq', 'bits': 4, 'group_size': 64, 'version': 'gemm', 'zero_point': True, 'backend': 'autoawq',
                     'do_fuse': False, 'modules_to_not_convert': [kept]})
m.build(lambda n, o, i: m.plain(n + '.weight', (o, i), 0.1) if n == kept else m.awq(n, o, i))

m = Model('gptq-sym', 2, {'quant_method': 'gptq', 'bits': 4, 'group_size': 128, 'sym': True, 'desc_act': False, 'damp_percent': 0.01,
                          'static_groups': False, 'true_sequential': True, 'model_name_or_path': None, 'model_file_base_name': 'model'}, arch='qwen2', shards=2)
m.build(lambda n, o, i: m.gptq(n, o, i, 4, 128, True, 1))

m = Model('gptq-asym-v1', 3, {'quant_method': 'gptq', 'bits': 4, 'group_size': 32, 'sym': False, 'desc_act': False, 'checkpoint_format': 'gptq'})
m.build(lambda n, o, i: m.gptq(n, o, i, 4, 32, False, 1))

m = Model('gptq-v2', 4, {'quant_method': 'gptq', 'bits': 4, 'group_size': 64, 'sym': False, 'desc_act': False, 'checkpoint_format': 'gptq_v2',
                         'pack_dtype': 'int32', 'lm_head': False, 'dynamic': {}, 'meta': {'quantizer': ['gptqmodel:2.0.0']}})
m.build(lambda n, o, i: m.gptq(n, o, i, 4, 64, False, 2, g_idx=False))

m = Model('gptq-8bit', 5, {'quant_method': 'gptq', 'bits': 8, 'group_size': -1, 'sym': True, 'desc_act': True, 'checkpoint_format': 'gptq'})
m.build(lambda n, o, i: m.gptq(n, o, i, 8, -1, True, 1))

m = Model('fp8', 6, {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic', 'weight_block_size': [128, 128],
                     'modules_to_not_convert': ['lm_head', kept]}, inner=192, half='BF16')
m.build(lambda n, o, i: m.plain(n + '.weight', (o, i), 0.1) if n == kept else m.fp8(n, o, i, (128, 128), '.weight_scale_inv'))

m = Model('compressed-int4', 7, compressed({'num_bits': 4, 'type': 'int', 'symmetric': True, 'strategy': 'group', 'group_size': 64, 'actorder': None}, 'pack-quantized'), half='BF16')
m.build(lambda n, o, i: m.packed(n, o, i, 4, 64, True, True))

m = Model('compressed-int4-zeros', 8, compressed({'num_bits': 4, 'type': 'int', 'symmetric': False, 'strategy': 'group', 'group_size': 32, 'actorder': 'static'}, 'pack-quantized'), half='BF16')
m.build(lambda n, o, i: m.packed(n, o, i, 4, 32, False, True))

m = Model('compressed-int8', 9, compressed({'num_bits': 8, 'type': 'int', 'symmetric': True, 'strategy': 'channel'}, 'pack-quantized'), half='BF16')
m.build(lambda n, o, i: m.packed(n, o, i, 8, -1, True, True))

m = Model('compressed-fp8', 10, compressed({'num_bits': 8, 'type': 'float', 'symmetric': True, 'strategy': 'channel'}, 'float-quantized',
                                           {'num_bits': 8, 'type': 'float', 'strategy': 'token', 'dynamic': True}), half='BF16')
m.build(lambda n, o, i: m.fp8(n, o, i, (1, -1), '.weight_scale', 'F32'))
