"""Makes golden models of random weights whose logits reference.py computes in float64.

    python3 make.py            # writes every folder of models below, the same bytes each time
    python3 make.py experts    # writes experts.safetensors of every mixture, others' too

Weights are in bf16, drawn from a fixed sequence. A seed is taken that leaves no near-tie: no
row's experts, and no two largest logits, are closer than arithmetic in f32 can tell apart.
"""
import json, os, struct, sys
import numpy as np
import reference

GAP = 5e-4

small = dict(vocab_size=160, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=64, hidden_act='silu', max_position_embeddings=4096,
             rms_norm_eps=1e-6, attention_bias=False, dtype='bfloat16', eos_token_id=None)

models = {
    # A memory of a thousand rows, three value heads a key head, heads of keys and of values of
    # different widths, a dense layer between, experts whose weights do not sum up to 1, three taps.
    'qwen3-next-long': dict(rows=224, decay=(-3, 0.7), time=(-4.5, 0.5), config=dict(small, model_type='qwen3_next', architectures=['Qwen3NextForCausalLM'], num_hidden_layers=4, partial_rotary_factor=0.25, rope_theta=10000.0,
        layer_types=['linear_attention', 'full_attention', 'linear_attention', 'linear_attention'], linear_conv_kernel_dim=3, linear_key_head_dim=16, linear_value_head_dim=24,
        linear_num_key_heads=2, linear_num_value_heads=6, intermediate_size=96, mlp_only_layers=[2], decoder_sparse_step=1, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, shared_expert_intermediate_size=64, norm_topk_prob=False, tie_word_embeddings=False, use_sliding_window=False)),
    # Fused experts under the names of a model that sees images, some of whose tensors are there; a
    # tied head; a head for drafts whose experts are apart.
    'qwen3-5-moe-tiny': dict(rows=200, decay=(-1, 0.7), time=(-2, 1), config=dict(model_type='qwen3_5_moe', architectures=['Qwen3_5MoeForConditionalGeneration'], tie_word_embeddings=True, image_token_id=159,
        vision_config=dict(depth=1, hidden_size=16, model_type='qwen3_5_moe'),
        text_config=dict(small, model_type='qwen3_5_moe_text', num_hidden_layers=4, full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=32, linear_value_head_dim=16,
            linear_num_key_heads=2, linear_num_value_heads=4, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
            mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, tie_word_embeddings=True, attn_output_gate=True, output_gate_type='swish',
            rope_parameters=dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True)))),
    # Dense, four value heads a key head, a head for drafts.
    'qwen3-5-drafts': dict(rows=200, decay=(0, 1), time=(-1, 1), config=dict(small, model_type='qwen3_5_text', architectures=['Qwen3_5ForCausalLM'], num_hidden_layers=4, intermediate_size=96,
        linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=8, mtp_num_hidden_layers=1, tie_word_embeddings=False,
        rope_parameters=dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=0.25))),
}


def bf16(a):
    """The nearest bf16, ties to even, as its 16 bits."""
    u = np.ascontiguousarray(a, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path, tensors):
    header, data = {}, b''
    for name, a in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        dtype = {'uint16': 'BF16', 'float32': 'F32', 'int32': 'I32'}[a.dtype.name]
        header[name] = dict(dtype=dtype, shape=list(a.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def weights(model, rng):
    """Random weights of a config, by name, as bits of bf16."""
    config = model['config']
    c = dict(config)
    c.update(config.get('text_config', {}))
    shape = reference.Model(config, {'lm_head.weight': None, 'model.embed_tokens.weight': None})
    trunk = 'model.language_model.' if 'text_config' in config else 'model.'
    hidden, w = c['hidden_size'], {}

    def matrix(name, *size):
        w[name] = bf16(rng.standard_normal(size) / np.sqrt(size[-1]))

    def norm(name, n, around=0):
        w[name + '.weight'] = bf16(around + 0.2 * rng.standard_normal(n))

    def swiglu(at, inner):
        matrix(at + 'gate_proj.weight', inner, hidden)
        matrix(at + 'up_proj.weight', inner, hidden)
        matrix(at + 'down_proj.weight', hidden, inner)

    def attention(at):
        heads, kv, dim = c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
        matrix(at + 'q_proj.weight', 2 * heads * dim, hidden)
        matrix(at + 'k_proj.weight', kv * dim, hidden)
        matrix(at + 'v_proj.weight', kv * dim, hidden)
        matrix(at + 'o_proj.weight', hidden, heads * dim)
        norm(at + 'q_norm', dim)
        norm(at + 'k_norm', dim)

    def delta(at):
        hk, hv, dk, dv = (c['linear_' + n] for n in ('num_key_heads', 'num_value_heads', 'key_head_dim', 'value_head_dim'))
        channels = 2 * hk * dk + hv * dv
        if shape.kind == 'qwen3_next':
            matrix(at + 'in_proj_qkvz.weight', channels + hv * dv, hidden)
            matrix(at + 'in_proj_ba.weight', 2 * hv, hidden)
        else:
            matrix(at + 'in_proj_qkv.weight', channels, hidden)
            matrix(at + 'in_proj_z.weight', hv * dv, hidden)
            matrix(at + 'in_proj_b.weight', hv, hidden)
            matrix(at + 'in_proj_a.weight', hv, hidden)
        matrix(at + 'conv1d.weight', channels, 1, c['linear_conv_kernel_dim'])
        mean, spread = model['decay']
        w[at + 'A_log'] = bf16(mean + spread * rng.standard_normal(hv))
        mean, spread = model['time']
        w[at + 'dt_bias'] = bf16(mean + spread * rng.standard_normal(hv))
        norm(at + 'norm', dv, around=1)
        matrix(at + 'out_proj.weight', hidden, hv * dv)

    def experts(at, fused):
        inner, count = c['moe_intermediate_size'], c['num_experts']
        matrix(at + 'gate.weight', count, hidden)
        if fused:
            matrix(at + 'experts.gate_up_proj', count, 2 * inner, hidden)
            matrix(at + 'experts.down_proj', count, hidden, inner)
        else:
            for e in range(count):
                swiglu(f'{at}experts.{e}.', inner)
        swiglu(at + 'shared_expert.', c['shared_expert_intermediate_size'])
        matrix(at + 'shared_expert_gate.weight', 1, hidden)

    def layer(at, number):
        norm(at + 'input_layernorm', hidden)
        delta(at + 'linear_attn.') if shape.is_delta(number) else attention(at + 'self_attn.')
        norm(at + 'post_attention_layernorm', hidden)
        if shape.is_sparse(number):
            experts(at + 'mlp.', shape.kind == 'qwen3_5_moe' and number < shape.layers)
        else:
            swiglu(at + 'mlp.', c['intermediate_size'])

    w[trunk + 'embed_tokens.weight'] = bf16(rng.standard_normal((c['vocab_size'], hidden)))
    for i in range(shape.layers):
        layer(f'{trunk}layers.{i}.', i)
    norm(trunk + 'norm', hidden)
    if not c['tie_word_embeddings']:
        matrix('lm_head.weight', c['vocab_size'], hidden)
    if c.get('mtp_num_hidden_layers'):
        matrix('mtp.fc.weight', hidden, 2 * hidden)
        norm('mtp.pre_fc_norm_embedding', hidden)
        norm('mtp.pre_fc_norm_hidden', hidden)
        layer('mtp.layers.0.', shape.layers)
        norm('mtp.norm', hidden)
    if 'vision_config' in config:
        matrix('model.visual.patch_embed.proj.weight', 16, 8)
    return w


def decided(logits):
    top = np.sort(logits, -1)
    return (top[:, -1] - top[:, -2]).min() > GAP


def make(name, model):
    os.makedirs(name, exist_ok=True)
    with open(name + '/config.json', 'w') as f:
        json.dump(model['config'], f, indent=1)
        f.write('\n')
    for seed in range(1, 1000):
        rng = np.random.default_rng(seed)
        write_safetensors(name + '/model.safetensors', weights(model, rng))
        m = reference.load(name)
        ids = rng.integers(0, m.head.shape[0], model['rows']).astype(np.int32)
        hidden, logits = m.forward(ids)
        golden = {'prompt.ids': ids, 'prompt.logits': logits.astype(np.float32)}
        for i, h in enumerate(hidden):
            golden[f'prompt.hidden.{i}'] = h.astype(np.float32)
        # A window of 16 rows behind a cached prefix: packed in logical order, as hybrids have it.
        base = model['rows'] // 2 + 7
        golden |= {'window0.base': np.int32([base]), 'window0.ids': ids[:base + 16], 'window0.positions': np.arange(base + 16, dtype=np.int32),
                   'window0.logits': golden['prompt.logits'][base:base + 16]}
        if 'mtp.fc.weight' in m.w:
            golden['mtp.logits'] = m.drafts(ids, hidden[-1]).astype(np.float32)
        if all(decided(golden[n]) for n in golden if n.endswith('logits')) and min(m.gaps, default=1) > GAP:
            write_safetensors(name + '/golden.safetensors', golden)
            print(f'{name}: seed {seed}; in its last DeltaNet a row keeps {m.alpha.min():.4f} to {m.alpha.max():.4f} of what was, {np.median(m.alpha):.4f} in the middle')
            return
        print(f'{name}: seed {seed} leaves a near-tie: {min(m.gaps, default=1):.2g}')
    raise SystemExit(f'{name}: every seed leaves a near-tie')


mixtures = ['qwen3-moe-tiny', 'qwen3-next-tiny', 'qwen3-next-long', 'qwen3-5-moe-tiny', 'tiny-gsm-next']


def experts(name):
    """Which experts each row of the prompt chooses: [layers that have some, rows, chosen]."""
    m = reference.load('../../../models/tinygsmnext' if name == 'tiny-gsm-next' else name)
    m.forward(reference.read_safetensors(name + '/golden.safetensors')['prompt.ids'])
    write_safetensors(name + '/experts.safetensors', {'prompt.experts': np.int32(m.chosen)})
    print(f'{name}: experts {np.shape(m.chosen)}, smallest gap {min(m.gaps):.2g}')


if __name__ == '__main__':
    for name, model in models.items() if sys.argv[1:] != ['experts'] else []:
        make(name, model)
    for name in mixtures:
        experts(name)
