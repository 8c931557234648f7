"""The mathematics of Qwen3-MoE, Qwen3-Next and Qwen3.5 in float64, for golden tensors.

Written from the papers (Gated DeltaNet: arXiv 2412.06464) and the public model code, with
nothing of the Go code, and for clearness alone: a loop for each row, head and expert.

    python3 reference.py DIR [MODEL]      # compares with DIR/golden.safetensors

MODEL is the folder with config.json and model.safetensors; it may be DIR itself.
"""
import json, struct, sys
import numpy as np


def read_safetensors(path):
    """Tensors by name, as float64 or whole numbers."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name == '__metadata__':
            continue
        raw = data[t['data_offsets'][0]:t['data_offsets'][1]]
        if t['dtype'] == 'BF16':
            a = (np.frombuffer(raw, '<u2').astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif t['dtype'] == 'F32':
            a = np.frombuffer(raw, '<f4').astype(np.float64)
        else:
            a = np.frombuffer(raw, {'I32': '<i4', 'I64': '<i8'}[t['dtype']])
        tensors[name] = a.reshape(t['shape'])
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


class Model:
    def __init__(self, config, weights):
        c = dict(config)
        c.update(config.get('text_config', {}))
        kind = config['model_type'].removesuffix('_text')
        self.kind, self.c = kind, c
        self.hybrid = kind != 'qwen3_moe'
        # Models that see images have the text model's names under another prefix.
        self.w = {n.replace('model.language_model.', 'model.'): a for n, a in weights.items() if not n.startswith('model.visual.')}
        self.layers = c['num_hidden_layers']
        self.eps = c.get('rms_norm_eps', 1e-6)
        self.head = self.w.get('lm_head.weight', self.w['model.embed_tokens.weight'])
        self.gaps = []  # between the last expert that is chosen and the first that is not
        self.chosen = []  # the experts of each row, ascending, by layer

    def norm(self, name, x):
        w = self.w[name]
        if self.hybrid and not name.endswith('linear_attn.norm.weight'):
            w = 1 + w
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def linear(self, name, x):
        return x @ self.w[name + '.weight'].T

    def is_delta(self, layer):
        if not self.hybrid or layer >= self.layers:
            return False
        if self.c.get('layer_types'):
            return self.c['layer_types'][layer] == 'linear_attention'
        return (layer + 1) % self.c.get('full_attention_interval', 4) != 0

    def is_sparse(self, layer):
        c = self.c
        if self.kind == 'qwen3_5':
            return False
        if layer >= self.layers or self.kind == 'qwen3_5_moe':
            return True
        return layer not in c.get('mlp_only_layers', []) and (layer + 1) % c.get('decoder_sparse_step', 1) == 0

    # attention

    def rotated(self, x, position):
        """x [heads, dim]: element i and i + n/2 of the first n turn together."""
        rope = self.c.get('rope_parameters') or {}
        part = rope.get('partial_rotary_factor', self.c.get('partial_rotary_factor', 0.25 if self.hybrid else 1))
        theta = rope.get('rope_theta', self.c.get('rope_theta', 10000))
        n = int(x.shape[-1] * part)
        angle = position * float(theta) ** (-np.arange(0, n, 2) / n)
        a, b = x[..., :n // 2], x[..., n // 2:n]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), x[..., n:]], -1)

    def attention(self, at, h):
        c, rows = self.c, len(h)
        heads, kv, dim = c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
        q = self.linear(at + 'q_proj', h).reshape(rows, heads, -1)
        if self.hybrid:
            q, gate = q[..., :dim], q[..., dim:]
        k = self.linear(at + 'k_proj', h).reshape(rows, kv, dim)
        v = self.linear(at + 'v_proj', h).reshape(rows, kv, dim)
        q, k = self.norm(at + 'q_norm.weight', q), self.norm(at + 'k_norm.weight', k)
        for t in range(rows):
            q[t], k[t] = self.rotated(q[t], t), self.rotated(k[t], t)
        out = np.zeros((rows, heads, dim))
        for t in range(rows):
            for i in range(heads):
                g = i // (heads // kv)
                p = softmax(k[:t + 1, g] @ q[t, i] / np.sqrt(dim))
                out[t, i] = p @ v[:t + 1, g]
        if self.hybrid:
            out = out * sigmoid(gate)
        return self.linear(at + 'o_proj', out.reshape(rows, -1))

    # gated DeltaNet

    def projections(self, at, h):
        """q, k [rows, key heads, dk], v, z [rows, value heads, dv], b, a [rows, value heads]."""
        c, rows = self.c, len(h)
        hk, hv = c['linear_num_key_heads'], c['linear_num_value_heads']
        dk, dv, r = c['linear_key_head_dim'], c['linear_value_head_dim'], hv // hk
        if self.kind == 'qwen3_next':
            x = self.linear(at + 'in_proj_qkvz', h).reshape(rows, hk, -1)
            q, k, v, z = np.split(x, [dk, 2 * dk, 2 * dk + r * dv], -1)
            b, a = np.split(self.linear(at + 'in_proj_ba', h).reshape(rows, hk, -1), 2, -1)
        else:
            q, k, v = np.split(self.linear(at + 'in_proj_qkv', h), [hk * dk, 2 * hk * dk], -1)
            z, b, a = (self.linear(at + 'in_proj_' + n, h) for n in 'zba')
        return q.reshape(rows, hk * dk), k.reshape(rows, hk * dk), v.reshape(rows, hv * dv), z.reshape(rows, hv, dv), b.reshape(rows, hv), a.reshape(rows, hv)

    def delta(self, at, h):
        c, rows = self.c, len(h)
        hk, hv = c['linear_num_key_heads'], c['linear_num_value_heads']
        dk, dv = c['linear_key_head_dim'], c['linear_value_head_dim']
        q, k, v, z, b, a = self.projections(at, h)
        u = np.concatenate([q, k, v], -1)
        kernel = self.w[at + 'conv1d.weight'][:, 0, :]
        taps = kernel.shape[1]
        past = np.concatenate([np.zeros((taps - 1, u.shape[1])), u])
        u = silu(np.stack([(past[t:t + taps] * kernel.T).sum(0) for t in range(rows)]))
        q, k, v = np.split(u, [hk * dk, 2 * hk * dk], -1)
        q, k, v = q.reshape(rows, hk, dk), k.reshape(rows, hk, dk), v.reshape(rows, hv, dv)
        q = q / np.sqrt((q * q).sum(-1, keepdims=True) + 1e-6) / np.sqrt(dk)
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
        beta = sigmoid(b)
        alpha = np.exp(-np.exp(self.w[at + 'A_log']) * np.logaddexp(0, a + self.w[at + 'dt_bias']))
        self.alpha = alpha
        state, out = np.zeros((hv, dk, dv)), np.zeros((rows, hv, dv))
        for t in range(rows):
            for j in range(hv):
                g = j // (hv // hk)
                state[j] *= alpha[t, j]
                change = beta[t, j] * (v[t, j] - k[t, g] @ state[j])
                state[j] += np.outer(k[t, g], change)
                out[t, j] = q[t, g] @ state[j]
        out = self.norm(at + 'norm.weight', out) * silu(z)
        return self.linear(at + 'out_proj', out.reshape(rows, -1))

    # MLP

    def swiglu(self, at, x):
        return self.linear(at + 'down_proj', silu(self.linear(at + 'gate_proj', x)) * self.linear(at + 'up_proj', x))

    def expert(self, at, e, x):
        if at + 'experts.gate_up_proj' in self.w:
            gate, up = np.split(self.w[at + 'experts.gate_up_proj'][e] @ x, 2)
            return self.w[at + 'experts.down_proj'][e] @ (silu(gate) * up)
        return self.swiglu(f'{at}experts.{e}.', x)

    def experts(self, at, h):
        c = self.c
        out = np.zeros_like(h)
        self.chosen.append([])
        for t, x in enumerate(h):
            logits = self.linear(at + 'gate', x)
            p = softmax(logits)
            order = sorted(range(len(p)), key=lambda e: (-logits[e], e))
            k = c['num_experts_per_tok']
            self.gaps.append(logits[order[k - 1]] - logits[order[k]])
            chosen = sorted(order[:k])
            self.chosen[-1].append(chosen)
            total = sum(p[e] for e in chosen) if self.kind == 'qwen3_5_moe' or c.get('norm_topk_prob', self.kind == 'qwen3_next') else 1
            for e in chosen:
                out[t] += p[e] / total * self.expert(at, e, x)
            if at + 'shared_expert_gate.weight' in self.w:
                out[t] += sigmoid(self.linear(at + 'shared_expert_gate', x)) * self.swiglu(at + 'shared_expert.', x)
        return out

    # the model

    def layer(self, at, number, x):
        h = self.norm(at + 'input_layernorm.weight', x)
        x = x + (self.delta(at + 'linear_attn.', h) if self.is_delta(number) else self.attention(at + 'self_attn.', h))
        h = self.norm(at + 'post_attention_layernorm.weight', x)
        return x + (self.experts(at + 'mlp.', h) if self.is_sparse(number) else self.swiglu(at + 'mlp.', h))

    def forward(self, ids):
        """Hidden states, those before the first layer and after each; the last after the final norm, too. Then the logits."""
        x = self.w['model.embed_tokens.weight'][ids]
        hidden = [x]
        for i in range(self.layers):
            x = self.layer(f'model.layers.{i}.', i, x)
            hidden.append(x)
        hidden[-1] = self.norm('model.norm.weight', x)
        return hidden, hidden[-1] @ self.head.T

    def drafts(self, ids, last):
        """Logits of the head for drafts: row t, of the hidden state of t and the token after it, is for the token after that."""
        embedding = self.norm('mtp.pre_fc_norm_embedding.weight', self.w['model.embed_tokens.weight'][ids[1:]])
        x = self.linear('mtp.fc', np.concatenate([embedding, self.norm('mtp.pre_fc_norm_hidden.weight', last[:-1])], -1))
        x = self.layer('mtp.layers.0.', self.layers, x)
        return self.norm('mtp.norm.weight', x) @ self.head.T


def load(folder):
    with open(folder + '/config.json') as f:
        return Model(json.load(f), read_safetensors(folder + '/model.safetensors'))


def compare(name, ours, golden):
    equal = (ours.argmax(-1) == golden.argmax(-1)).sum()
    print(f'{name}: relative error {np.linalg.norm(ours - golden) / np.linalg.norm(golden):.2g}, argmax equal in {equal} of {len(golden)}')


def main(golden, folder):
    g, m = read_safetensors(golden + '/golden.safetensors'), load(folder)
    hidden, logits = m.forward(g['prompt.ids'])
    compare('prompt.logits', logits, g['prompt.logits'])
    if 'mtp.logits' in g:
        compare('mtp.logits', m.drafts(g['prompt.ids'], hidden[-1]), g['mtp.logits'])
    for i, h in enumerate(hidden):
        if f'prompt.hidden.{i}' in g:
            compare(f'prompt.hidden.{i}', h, g[f'prompt.hidden.{i}'])
    if m.gaps:
        print(f'smallest gap between chosen experts and others: {min(m.gaps):.2g}')


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[-1])
