"""The models of shardscope in plain PyTorch, by their published architectures: what PyTorch's FSDP wraps in the parity matrix.

Names and order of parameters are Hugging Face's as shardscope registers them. Weights come from the counter-based rule
of tests/data/goldens/README.md. Sizes are one dict: family, layers, dim, heads, kv_heads, ffn, vocab, classes, seq, tied.
"""
import math

import peer_fsdp
import torch
from torch import nn
from torch.nn import functional as F

FEATURES = 0x66656174
EPS = 1e-5


def promoted(w, x):
    """Outputs of units may be wider than the parameters of the module that reads them."""
    return w.to(torch.promote_types(w.dtype, x.dtype))


class RmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], promoted(self.weight, x), EPS)


class LayerNorm(nn.LayerNorm):
    def __init__(self, dim):
        super().__init__(dim, eps=EPS)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], promoted(self.weight, x), promoted(self.bias, x), EPS)


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


class Bag(nn.Module):
    """Named children, called by their owner."""

    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)


def linear(n_in, n_out, bias=False):
    return Linear(n_in, n_out, bias=bias)


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def rotary(x, rotary_dims):
    """Turns the first dimensions of each head: halves, tables in fp32 from double."""
    half = rotary_dims // 2
    angle = torch.tensor([[t * 10000.0 ** (-j / half) for j in range(half)] for t in range(x.shape[-2])], dtype=torch.float64)
    cosine, sine = angle.cos().float(), angle.sin().float()
    low, high, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    turned = torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x.dtype)
    return torch.cat((turned, rest), -1)


# ---- Llama and its forms ---------------------------------------------------------------------------------------------
class LlamaBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.s, self.head = s, s["dim"] // s["heads"]
        own, shared = s["heads"] * self.head, s["kv_heads"] * self.head
        bias = s["family"] == "qwen2"
        self.input_layernorm = RmsNorm(s["dim"])
        self.self_attn = Bag(q_proj=linear(s["dim"], own, bias), k_proj=linear(s["dim"], shared, bias),
                             v_proj=linear(s["dim"], shared, bias), o_proj=linear(own, s["dim"]))
        if s["family"] == "qwen3":
            self.self_attn.q_norm, self.self_attn.k_norm = RmsNorm(self.head), RmsNorm(self.head)
        self.post_attention_layernorm = RmsNorm(s["dim"])
        self.mlp = Bag(gate_proj=linear(s["dim"], s["ffn"]), up_proj=linear(s["dim"], s["ffn"]), down_proj=linear(s["ffn"], s["dim"]))

    def forward(self, x):
        a, m, s = self.self_attn, self.mlp, self.s
        n = self.input_layernorm(x)
        q, k, v = heads_of(a.q_proj(n), s["heads"]), heads_of(a.k_proj(n), s["kv_heads"]), heads_of(a.v_proj(n), s["kv_heads"])
        if s["family"] == "qwen3":
            q, k = a.q_norm(q), a.k_norm(k)
        q, k = rotary(q, self.head), rotary(k, self.head)
        k, v = (t.repeat_interleave(s["heads"] // s["kv_heads"], 1) for t in (k, v))
        x = x + a.o_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        n = self.post_attention_layernorm(x)
        return x + m.down_proj(F.silu(m.gate_proj(n)) * m.up_proj(n))


# ---- GPT-NeoX --------------------------------------------------------------------------------------------------------
class NeoxBlock(Block):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.input_layernorm = LayerNorm(s["dim"])
        self.attention = Bag(query_key_value=linear(s["dim"], 3 * s["dim"], True), dense=linear(s["dim"], s["dim"], True))
        self.post_attention_layernorm = LayerNorm(s["dim"])
        self.mlp = Bag(dense_h_to_4h=linear(s["dim"], s["ffn"], True), dense_4h_to_h=linear(s["ffn"], s["dim"], True))

    def feed(self, x):
        return self.mlp.dense_4h_to_h(F.gelu(self.mlp.dense_h_to_4h(self.post_attention_layernorm(x))))

    def forward(self, x):
        head = self.s["dim"] // self.s["heads"]
        qkv = self.attention.query_key_value(self.input_layernorm(x))
        q, k, v = heads_of(qkv, self.s["heads"]).split(head, -1)  # by head
        turned = int(head * 0.25) // 2 * 2
        o = F.scaled_dot_product_attention(rotary(q, turned), rotary(k, turned), v, is_causal=True)
        h = x + self.attention.dense(joined(o))
        return h + self.feed(x if self.s["parallel_residual"] else h)


# ---- GPT-2, and the classifier that has its blocks -------------------------------------------------------------------
class Gpt2Block(Block):
    def __init__(self, s, causal=True):
        super().__init__()
        self.heads, self.causal = s["heads"], causal
        self.ln_1 = LayerNorm(s["dim"])
        self.attn = Bag(c_attn=Conv1D(s["dim"], 3 * s["dim"]), c_proj=Conv1D(s["dim"], s["dim"]))
        self.ln_2 = LayerNorm(s["dim"])
        self.mlp = Bag(c_fc=Conv1D(s["dim"], s["ffn"]), c_proj=Conv1D(s["ffn"], s["dim"]))

    def forward(self, x):
        q, k, v = (heads_of(t, self.heads) for t in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.attn.c_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Classifier(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocab"], s["dim"])
        self.h = nn.ModuleList(Gpt2Block(s, causal=False) for _ in range(s["layers"]))
        self.ln_f = LayerNorm(s["dim"])
        self.score = linear(s["dim"], s["classes"], True)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.h:
            x = block(x)
        return self.score(self.ln_f(x).mean(1))


class Causal(nn.Module):
    """Table (and table of positions), blocks, norm, head, by the names that each family gives them."""
    NAMES = {"llama": ("model", "embed_tokens", None, "layers", "norm", "lm_head"),
             "gpt-neox": ("gpt_neox", "embed_in", None, "layers", "final_layer_norm", "embed_out"),
             "gpt2": ("transformer", "wte", "wpe", "h", "ln_f", "lm_head")}

    def __init__(self, s):
        super().__init__()
        family = "llama" if s["family"] in ("qwen2", "qwen3") else s["family"]
        block = {"llama": LlamaBlock, "gpt-neox": NeoxBlock, "gpt2": Gpt2Block}[family]
        self.names = self.NAMES[family]
        model, table, positions, blocks, norm, head = self.names
        inner = {table: nn.Embedding(s["vocab"], s["dim"])}
        if positions:
            inner[positions] = nn.Embedding(s["seq"], s["dim"])
        inner[blocks] = nn.ModuleList(block(s) for _ in range(s["layers"]))
        inner[norm] = RmsNorm(s["dim"]) if family == "llama" else LayerNorm(s["dim"])
        self.add_module(model, Bag(**inner))
        self.add_module(head, linear(s["dim"], s["vocab"]))
        if s["tied"]:
            getattr(self, head).weight = inner[table].weight

    def forward(self, ids):
        model, table, positions, blocks, norm, head = self.names
        inner = getattr(self, model)
        x = getattr(inner, table)(ids)
        if positions:
            x = x + getattr(inner, positions)(torch.arange(ids.shape[1]))
        for block in getattr(inner, blocks):
            x = block(x)
        return getattr(self, head)(getattr(inner, norm)(x))


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
        self.q, self.k, self.v, self.o = (linear(s["dim"], s["dim"]) for _ in range(4))
        if owns_bias:
            self.relative_attention_bias = nn.Embedding(s["relative_buckets"], s["heads"])

    def made_bias(self, steps):
        buckets = relative_buckets(steps, self.s["relative_buckets"], self.s["relative_span"], not self.decodes)
        return self.relative_attention_bias(buckets).permute(2, 0, 1)[None]

    def forward(self, x, source, bias, causal):
        q, k, v = (heads_of(w(t), self.s["heads"]) for w, t in ((self.q, x), (self.k, source), (self.v, source)))
        if bias is not None and causal:
            bias = bias.masked_fill(torch.ones(bias.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        return self.o(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)))


class T5Block(Block):
    def __init__(self, s, decodes, first):
        super().__init__()
        self.s, self.decodes = s, decodes
        layers = [Bag(SelfAttention=T5Attention(s, decodes, first), layer_norm=RmsNorm(s["dim"]))]
        if decodes:
            layers.append(Bag(EncDecAttention=T5Attention(s, decodes, False), layer_norm=RmsNorm(s["dim"])))
        names = ("wi_0", "wi_1") if s["gated"] else ("wi",)
        dense = Bag(**{n: linear(s["dim"], s["ffn"]) for n in names}, wo=linear(s["ffn"], s["dim"]))
        layers.append(Bag(DenseReluDense=dense, layer_norm=RmsNorm(s["dim"])))
        self.layer = nn.ModuleList(layers)
        self.first = first

    def forward(self, x, encoded=None, bias=None):
        attention, made = self.layer[0].SelfAttention, self.first
        if made:
            bias = attention.made_bias(x.shape[1])
        n = self.layer[0].layer_norm(x)
        x = x + attention(n, n, bias, self.decodes)
        if self.decodes:
            x = x + self.layer[1].EncDecAttention(self.layer[1].layer_norm(x), encoded, None, False)
        dense, n = self.layer[-1].DenseReluDense, self.layer[-1].layer_norm(x)
        h = F.gelu(dense.wi_0(n), approximate="tanh") * dense.wi_1(n) if self.s["gated"] else F.relu(dense.wi(n))
        x = x + dense.wo(h)
        return (x, bias) if made else x


class T5(nn.Module):
    """Both stacks read the same ids, as in teacher forcing."""

    def __init__(self, s):
        super().__init__()
        self.scale = s["dim"] ** -0.5 if s["tied"] else 1.0
        self.shared = nn.Embedding(s["vocab"], s["dim"])
        for name, decodes in (("encoder", False), ("decoder", True)):
            blocks = nn.ModuleList(T5Block(s, decodes, i == 0) for i in range(s["layers"]))
            self.add_module(name, Bag(block=blocks, final_layer_norm=RmsNorm(s["dim"])))
        self.lm_head = linear(s["dim"], s["vocab"])
        if s["tied"]:
            self.lm_head.weight = self.shared.weight

    def forward(self, ids):
        encoded = None
        for stack in (self.encoder, self.decoder):
            x, bias = self.shared(ids), None
            for block in stack.block:
                x = block(x, encoded, bias)
                if bias is None:
                    x, bias = x
            encoded = stack.final_layer_norm(x)
        return self.lm_head(encoded * self.scale if self.scale != 1.0 else encoded)


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
    import fnmatch
    model = {"t5": T5, "embedding-classifier": Classifier, "mlp": Mlp, "chain": Chain}.get(s["family"], Causal)(s)
    norms = {id(p) for m in model.modules() if isinstance(m, (RmsNorm, LayerNorm)) for p in m.parameters(recurse=False)}
    with torch.no_grad():
        for index, (name, w) in enumerate(model.named_parameters()):
            if name.endswith(".bias"):
                w.zero_()
            elif id(w) not in norms:
                u = peer_fsdp.top_bits(peer_fsdp.output(seed, index), w.numel(), 24).float()
                w.copy_(((u * 2.0**-23 - 1.0) * 2.0**-5).view_as(w))
    for name, w in model.named_parameters():
        w.requires_grad_(not any(fnmatch.fnmatchcase(name, pattern) for pattern in s["frozen"]))
    return model


def batches(s, seed, rank, world, batch):
    """-> (inputs, targets) of the rank's micro-batches of a step."""
    count, width = s["accumulate"], s["seq"] + 1
    vectors = s["family"] in ("mlp", "chain")
    limit = s["classes"] if vectors else s["vocab"]
    numbers = peer_fsdp.top_bits(peer_fsdp.output(seed ^ peer_fsdp.TOKENS, 0), count * world * batch * width, 32) % limit
    result = []
    for k, tokens in enumerate(numbers.view(count, world, batch, width)[:, rank]):
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
        if s["family"] == "embedding-classifier":
            targets = tokens[:, -1] % s["classes"]
        if vectors:
            first = (k * world + rank) * batch
            each = s["seq"] * s["dim"]
            rows = [peer_fsdp.top_bits(peer_fsdp.output(seed ^ FEATURES, first + b), each, 24).float() for b in range(batch)]
            inputs = (torch.stack(rows) * 2.0**-23 - 1.0).view(batch, s["seq"], s["dim"])
        result.append((inputs, targets))
    return result
