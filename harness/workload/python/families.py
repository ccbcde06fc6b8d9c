"""The models of shardscope in plain PyTorch, by their published architectures: what PyTorch's own FSDP wraps.

Names and order of parameters are Hugging Face's as shardscope registers them, and every module that can be a unit is called.
Weights and data come from the counter-based rule of tests/data/goldens/README.md. Sizes are one dict: family, layers, dim,
heads, kv_heads, ffn, vocab, classes, seq, tied; and, where they differ from the usual, decoder_layers, head_dim, positions,
norm_eps, rope_theta, rotary_pct.
"""
import fnmatch
import math

import counter_numbers
import torch
from torch import nn
from torch.nn import functional as F

FEATURES, TOKENS = 0x66656174, 0x746F6B656E
EPS = 1e-5


def promoted(w, x):
    """Outputs of units may be wider than the parameters of the module that reads them."""
    return w.to(torch.promote_types(w.dtype, x.dtype))


class RmsNorm(nn.Module):
    def __init__(self, dim, eps=EPS):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], promoted(self.weight, x), self.eps)


class LayerNorm(nn.LayerNorm):
    def __init__(self, dim, eps=EPS):
        super().__init__(dim, eps=eps)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], promoted(self.weight, x), promoted(self.bias, x), self.eps)


class Linear(nn.Linear):
    def forward(self, x):
        return F.linear(x, promoted(self.weight, x), None if self.bias is None else promoted(self.bias, x))


class Conv1D(nn.Module):
    """GPT-2's linear: its weight is [in, out]."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Block(nn.Module):
    """What is a unit, and what checkpointing computes again."""


def linear(n_in, n_out, bias=False):
    return Linear(n_in, n_out, bias=bias)


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def rotary(x, rotary_dims, theta=10000.0):
    """Turns the first dimensions of each head: halves, tables in fp32 from double."""
    half = rotary_dims // 2
    angle = torch.tensor([[t * theta ** (-j / half) for j in range(half)] for t in range(x.shape[-2])], dtype=torch.float64)
    cosine, sine = angle.cos().float().to(x.device), angle.sin().float().to(x.device)
    low, high, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    turned = torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x.dtype)
    return torch.cat((turned, rest), -1)


def norm_of(kind, s, dim=None):
    return kind(dim or s["dim"], s.get("norm_eps", EPS))


# ---- Llama and its forms ---------------------------------------------------------------------------------------------
class LlamaAttention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, self.head = s, s.get("head_dim") or s["dim"] // s["heads"]
        own, shared, bias = s["heads"] * self.head, s["kv_heads"] * self.head, s["family"] == "qwen2"
        self.q_proj, self.k_proj, self.v_proj = linear(s["dim"], own, bias), linear(s["dim"], shared, bias), linear(s["dim"], shared, bias)
        self.o_proj = linear(own, s["dim"])
        if s["family"] == "qwen3":
            self.q_norm, self.k_norm = norm_of(RmsNorm, s, self.head), norm_of(RmsNorm, s, self.head)

    def forward(self, n):
        s = self.s
        q, k, v = heads_of(self.q_proj(n), s["heads"]), heads_of(self.k_proj(n), s["kv_heads"]), heads_of(self.v_proj(n), s["kv_heads"])
        if s["family"] == "qwen3":
            q, k = self.q_norm(q), self.k_norm(k)
        theta = s.get("rope_theta", 10000.0)
        q, k = rotary(q, self.head, theta), rotary(k, self.head, theta)
        k, v = (t.repeat_interleave(s["heads"] // s["kv_heads"], 1) for t in (k, v))
        return self.o_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class LlamaMlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(s["dim"], s["ffn"]), linear(s["dim"], s["ffn"]), linear(s["ffn"], s["dim"])

    def forward(self, n):
        return self.down_proj(F.silu(self.gate_proj(n)) * self.up_proj(n))


class LlamaBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm = norm_of(RmsNorm, s)
        self.self_attn = LlamaAttention(s)
        self.post_attention_layernorm = norm_of(RmsNorm, s)
        self.mlp = LlamaMlp(s)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


# ---- GPT-NeoX --------------------------------------------------------------------------------------------------------
class NeoxAttention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.query_key_value, self.dense = linear(s["dim"], 3 * s["dim"], True), linear(s["dim"], s["dim"], True)

    def forward(self, n):
        s, head = self.s, self.s["dim"] // self.s["heads"]
        q, k, v = heads_of(self.query_key_value(n), s["heads"]).split(head, -1)  # by head
        turned, theta = int(head * s.get("rotary_pct", 0.25)) // 2 * 2, s.get("rope_theta", 10000.0)
        return self.dense(joined(F.scaled_dot_product_attention(rotary(q, turned, theta), rotary(k, turned, theta), v, is_causal=True)))


class NeoxMlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.dense_h_to_4h, self.dense_4h_to_h = linear(s["dim"], s["ffn"], True), linear(s["ffn"], s["dim"], True)

    def forward(self, n):
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(n)))


class NeoxBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.parallel = s["parallel_residual"]
        self.input_layernorm = norm_of(LayerNorm, s)
        self.attention = NeoxAttention(s)
        self.post_attention_layernorm = norm_of(LayerNorm, s)
        self.mlp = NeoxMlp(s)

    def forward(self, x):
        h = x + self.attention(self.input_layernorm(x))
        return h + self.mlp(self.post_attention_layernorm(x if self.parallel else h))


# ---- GPT-2, and the classifier that has its blocks -------------------------------------------------------------------
class Gpt2Attention(nn.Module):
    def __init__(self, s, causal):
        super().__init__()
        self.heads, self.causal = s["heads"], causal
        self.c_attn, self.c_proj = Conv1D(s["dim"], 3 * s["dim"]), Conv1D(s["dim"], s["dim"])

    def forward(self, n):
        q, k, v = (heads_of(t, self.heads) for t in self.c_attn(n).chunk(3, -1))
        return self.c_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)))


class Gpt2Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(s["dim"], s["ffn"]), Conv1D(s["ffn"], s["dim"])

    def forward(self, n):
        return self.c_proj(F.gelu(self.c_fc(n), approximate="tanh"))


class Gpt2Block(Block):
    def __init__(self, s, causal=True):
        super().__init__()
        self.ln_1 = norm_of(LayerNorm, s)
        self.attn = Gpt2Attention(s, causal)
        self.ln_2 = norm_of(LayerNorm, s)
        self.mlp = Gpt2Mlp(s)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Classifier(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocab"], s["dim"])
        self.h = nn.ModuleList(Gpt2Block(s, causal=False) for _ in range(s["layers"]))
        self.ln_f = norm_of(LayerNorm, s)
        self.score = linear(s["dim"], s["classes"], True)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.h:
            x = block(x)
        return self.score(self.ln_f(x).mean(1))


class Body(nn.Module):
    """Table (and table of positions), blocks, norm."""

    def __init__(self, s, names, block, norm):
        super().__init__()
        self.names = names
        table, positions, blocks, last = names
        self.add_module(table, nn.Embedding(s["vocab"], s["dim"]))
        if positions:
            self.add_module(positions, nn.Embedding(s.get("positions") or s["seq"], s["dim"]))
        self.add_module(blocks, nn.ModuleList(block(s) for _ in range(s["layers"])))
        self.add_module(last, norm_of(norm, s))

    def forward(self, ids):
        table, positions, blocks, last = self.names
        x = getattr(self, table)(ids)
        if positions:
            x = x + getattr(self, positions)(torch.arange(ids.shape[1], device=ids.device))
        for block in getattr(self, blocks):
            x = block(x)
        return getattr(self, last)(x)


class Causal(nn.Module):
    """A body and a head, by the names that each family gives them."""
    NAMES = {"llama": ("model", "embed_tokens", None, "layers", "norm", "lm_head"),
             "gpt-neox": ("gpt_neox", "embed_in", None, "layers", "final_layer_norm", "embed_out"),
             "gpt2": ("transformer", "wte", "wpe", "h", "ln_f", "lm_head")}

    def __init__(self, s):
        super().__init__()
        family = "llama" if s["family"] in ("qwen2", "qwen3") else s["family"]
        block = {"llama": LlamaBlock, "gpt-neox": NeoxBlock, "gpt2": Gpt2Block}[family]
        self.body, *names, self.head = self.NAMES[family]
        self.add_module(self.body, Body(s, names, block, RmsNorm if family == "llama" else LayerNorm))
        self.add_module(self.head, linear(s["dim"], s["vocab"]))
        if s["tied"]:
            getattr(self, self.head).weight = getattr(getattr(self, self.body), names[0]).weight

    def forward(self, ids):
        return getattr(self, self.head)(getattr(self, self.body)(ids))


# ---- T5 --------------------------------------------------------------------------------------------------------------
def relative_buckets(steps, buckets, span, both_ways):
    """[query, key] -> the distance's bucket: each near distance has its own, then logarithmic up to `span`."""
    distance = torch.arange(steps)[None, :] - torch.arange(steps)[:, None]
    first = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        first = (distance > 0).long() * buckets
        n = distance.abs()
    else:
        n = (-distance).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(n.clamp(min=1).float() / exact) / math.log(span / exact) * (buckets - exact)).long()
    return first + torch.where(n < exact, n, far.clamp(max=buckets - 1))


class T5Attention(nn.Module):
    def __init__(self, s, decodes, owns_bias):
        super().__init__()
        self.s, self.decodes = s, decodes
        inner = s["heads"] * (s.get("head_dim") or s["dim"] // s["heads"])
        self.q, self.k, self.v, self.o = linear(s["dim"], inner), linear(s["dim"], inner), linear(s["dim"], inner), linear(inner, s["dim"])
        if owns_bias:
            self.relative_attention_bias = nn.Embedding(s["relative_buckets"], s["heads"])

    def made_bias(self, steps):
        table = self.relative_attention_bias
        buckets = relative_buckets(steps, self.s["relative_buckets"], self.s["relative_span"], not self.decodes)
        return table(buckets.to(table.weight.device)).permute(2, 0, 1)[None]

    def forward(self, x, source, bias, causal):
        """-> what it gives, and the bias, made here where this layer owns the table"""
        if hasattr(self, "relative_attention_bias"):
            bias = self.made_bias(x.shape[1])
        q, k, v = (heads_of(w(t), self.s["heads"]) for w, t in ((self.q, x), (self.k, source), (self.v, source)))
        mask = bias
        if bias is not None and causal:
            mask = bias.masked_fill(torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).triu(1), -math.inf)
        return self.o(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0))), bias


class T5Dense(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gated = s["gated"]
        for name in ("wi_0", "wi_1") if self.gated else ("wi",):
            self.add_module(name, linear(s["dim"], s["ffn"]))
        self.wo = linear(s["ffn"], s["dim"])

    def forward(self, n):
        return self.wo(F.gelu(self.wi_0(n), approximate="tanh") * self.wi_1(n) if self.gated else F.relu(self.wi(n)))


class T5Layer(nn.Module):
    """Attention or feed-forward, with its norm and residual."""

    def __init__(self, s, name, inner):
        super().__init__()
        self.name = name
        self.add_module(name, inner)
        self.layer_norm = norm_of(RmsNorm, s)

    def forward(self, x, source=None, bias=None, causal=False):
        n, inner = self.layer_norm(x), getattr(self, self.name)
        if self.name == "DenseReluDense":
            return x + inner(n)
        out, bias = inner(n, n if source is None else source, bias, causal)
        return x + out, bias


class T5Block(Block):
    def __init__(self, s, decodes, first):
        super().__init__()
        self.decodes, self.first = decodes, first
        layers = [T5Layer(s, "SelfAttention", T5Attention(s, decodes, first))]
        if decodes:
            layers.append(T5Layer(s, "EncDecAttention", T5Attention(s, decodes, False)))
        self.layer = nn.ModuleList([*layers, T5Layer(s, "DenseReluDense", T5Dense(s))])

    def forward(self, x, encoded=None, bias=None):
        x, bias = self.layer[0](x, None, bias, self.decodes)
        if self.decodes:
            x, _ = self.layer[1](x, encoded)
        x = self.layer[-1](x)
        return (x, bias) if self.first else x


class T5Stack(nn.Module):
    """Reads the table that both stacks share, which its owner gives."""

    def __init__(self, s, layers, decodes):
        super().__init__()
        self.block = nn.ModuleList(T5Block(s, decodes, i == 0) for i in range(layers))
        self.final_layer_norm = norm_of(RmsNorm, s)

    def forward(self, x, encoded=None):
        bias = None
        for block in self.block:
            x = block(x, encoded, bias)
            if bias is None:
                x, bias = x
        return self.final_layer_norm(x)


class T5(nn.Module):
    """Both stacks read the same ids, as in teacher forcing."""

    def __init__(self, s):
        super().__init__()
        self.scale = s["dim"] ** -0.5 if s["tied"] else 1.0
        self.shared = nn.Embedding(s["vocab"], s["dim"])
        self.encoder = T5Stack(s, s["layers"], False)
        self.decoder = T5Stack(s, s.get("decoder_layers") or s["layers"], True)
        self.lm_head = linear(s["dim"], s["vocab"])
        if s["tied"]:
            self.lm_head.weight = self.shared.weight

    def forward(self, ids):
        out = self.decoder(self.shared(ids), self.encoder(self.shared(ids)))
        return self.lm_head(out * self.scale if self.scale != 1.0 else out)


# ---- linear layers alone ---------------------------------------------------------------------------------------------
class MlpBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.fc1, self.fc2 = linear(s["dim"], s["ffn"], True), linear(s["ffn"], s["dim"], True)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.layers = nn.ModuleList(MlpBlock(s) for _ in range(s["layers"]))
        self.head = linear(s["dim"], s["classes"], True)

    def forward(self, x):
        for block in self.layers:
            x = block(x)
        return self.head(x)


class ChainBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.fc = linear(s["dim"], s["dim"], True)

    def forward(self, x):
        return F.gelu(self.fc(x) * 8)


class Chain(nn.Module):
    """Units in an order of their own (chain.h): one may come twice or not at all."""

    def __init__(self, s):
        super().__init__()
        self.order = s["order"]
        self.layers = nn.ModuleList(ChainBlock(s) for _ in range(s["layers"]))
        self.head = linear(s["dim"], s["classes"], True)

    def forward(self, x):
        for i in self.order:
            x = self.layers[i](x)
        return self.head(x)


# ---- all -------------------------------------------------------------------------------------------------------------
def build(s, seed):
    """The model with its weights; frozen as s["frozen"] says."""
    model = {"t5": T5, "embedding-classifier": Classifier, "mlp": Mlp, "chain": Chain}.get(s["family"], Causal)(s)
    norms = {id(p) for m in model.modules() if isinstance(m, (RmsNorm, LayerNorm)) for p in m.parameters(recurse=False)}
    with torch.no_grad():
        for index, (name, w) in enumerate(model.named_parameters()):
            if name.endswith(".bias"):
                w.zero_()
            elif id(w) not in norms:
                u = counter_numbers.top_bits(counter_numbers.output(seed, index), w.numel(), 24).float()
                w.copy_(((u * 2.0**-23 - 1.0) * 2.0**-5).view_as(w))
    for name, w in model.named_parameters():
        w.requires_grad_(not any(fnmatch.fnmatchcase(name, pattern) for pattern in s["frozen"]))
    return model


def batches(s, seed, rank, world, batch):
    """-> (inputs, targets) of the rank's micro-batches of a step."""
    count, width = s["accumulate"], s["seq"] + 1
    vectors = s["family"] in ("mlp", "chain")
    limit = s["classes"] if vectors else s["vocab"]
    numbers = counter_numbers.top_bits(counter_numbers.output(seed ^ TOKENS, 0), count * world * batch * width, 32) % limit
    result = []
    for k, tokens in enumerate(numbers.view(count, world, batch, width)[:, rank]):
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
        if s["family"] == "embedding-classifier":
            targets = tokens[:, -1] % s["classes"]
        if vectors:
            first = (k * world + rank) * batch
            each = s["seq"] * s["dim"]
            rows = [counter_numbers.top_bits(counter_numbers.output(seed ^ FEATURES, first + b), each, 24).float() for b in range(batch)]
            inputs = (torch.stack(rows) * 2.0**-23 - 1.0).view(batch, s["seq"], s["dim"])
        result.append((inputs, targets))
    return result
