#!/usr/bin/env python3
"""Makes the JSON files beside it: what Hugging Face transformers (4.51.3, PyTorch 2.11.0, one process, fp32, CPU) says of
small models of every architecture that `--model config.json` takes: the configuration as it saves it, the path and type
of every module, the shapes of all parameters, and losses and gradient norms of a few steps of training.

Weights, data and optimizer are those of tests/data/goldens/README.md; the order of parameters is the order of
registration, but a block of Llama's forms and of GPT-NeoX begins with the norm that runs first. T5's decoder reads the
encoder's ids: they are its targets one step behind.

  python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==4.51.3
  V/bin/python tests/data/models/make_models.py
"""
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "bench"))
import peer_fsdp  # noqa: E402

STEPS, SEED, BATCH, SEQ = 5, 1234, 2, 16
LLAMA = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=88,
             vocab_size=96, max_position_embeddings=64)
SET = "layers=2,dim=32,heads=4,kv_heads=2,ffn=88,vocab=96"
T5 = dict(num_layers=2, num_decoder_layers=3, d_model=32, num_heads=2, d_kv=12, d_ff=56, vocab_size=96, dropout_rate=0.0,
          relative_attention_num_buckets=8, relative_attention_max_distance=12)
T5_SET = ("layers=2,decoder_layers=3,dim=32,heads=2,head_dim=12,ffn=56,vocab=96,tied={},gated={},relative_buckets=8,"
          "relative_span=12")
# name: (class, configuration, family, its `set`)
MODELS = {
    "llama": ("LlamaForCausalLM", LLAMA, "llama", SET + ",norm_eps=1e-06"),
    "mistral": ("MistralForCausalLM", LLAMA, "mistral", SET + ",norm_eps=1e-06"),
    "qwen2": ("Qwen2ForCausalLM", dict(LLAMA, tie_word_embeddings=True), "qwen2", SET + ",tied=true"),
    "qwen3": ("Qwen3ForCausalLM", dict(LLAMA, head_dim=12), "qwen3", SET + ",head_dim=12"),
    "gpt_neox": ("GPTNeoXForCausalLM",
                 dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=88, vocab_size=96,
                      max_position_embeddings=64, rotary_pct=0.5), "gpt-neox",
                 "layers=2,dim=32,heads=2,ffn=88,vocab=96,rotary_pct=0.5"),
    "gpt2": ("GPT2LMHeadModel",
             dict(n_layer=2, n_embd=32, n_head=4, vocab_size=96, n_positions=20, resid_pdrop=0.0, embd_pdrop=0.0,
                  attn_pdrop=0.0), "gpt2", "layers=2,dim=32,heads=4,vocab=96,positions=20"),
    "t5": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="relu"), "t5", T5_SET.format("true", "false")),
    "t5_v1_1": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), "t5",
                T5_SET.format("false", "true")),
}
INSIDE = {"input_layernorm": 0, "self_attn": 1, "attention": 1, "post_attention_layernorm": 2, "mlp": 3}


def place(name, first_seen):
    """Sorts parameters: by registration, inside a block that INSIDE knows by execution."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part == "layers":
            return (first_seen[".".join(parts[:i])], int(parts[i + 1]), INSIDE[parts[i + 2]], first_seen[name])
    return (first_seen[name], 0, 0, 0)


def fill(model):
    names = [n for n, _ in model.named_parameters()]
    first_seen = {}
    for i, name in enumerate(names):
        for end in range(1, name.count(".") + 2):
            first_seen.setdefault(".".join(name.split(".")[:end]), i)
    ordered = sorted(model.named_parameters(), key=lambda p: place(p[0], first_seen))
    for index, (name, p) in enumerate(ordered):
        norm = any("norm" in part or part in ("ln_1", "ln_2", "ln_f") for part in name.split(".")[-2:])
        with torch.no_grad():
            if name.endswith("bias"):
                p.zero_()
            elif norm:
                p.fill_(1.0)
            else:
                u = peer_fsdp.top_bits(peer_fsdp.output(SEED, index), p.numel(), 24)
                p.copy_(((u.to(torch.float32) * 2.0**-23 - 1) * 2.0**-5).view(p.shape))
    return [name for name, _ in ordered]


def train(model, config):
    numbers = peer_fsdp.top_bits(peer_fsdp.output(SEED ^ peer_fsdp.TOKENS, 0), BATCH * (SEQ + 1), 32) % config.vocab_size
    tokens = numbers.view(BATCH, SEQ + 1)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    also = {"decoder_input_ids": inputs} if config.is_encoder_decoder else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for _ in range(STEPS):
        logits = model(input_ids=inputs, use_cache=False, **also).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, config.vocab_size), targets)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms


def main():
    torch.set_num_threads(1)
    for name, (kind, keys, family, dims) in MODELS.items():
        cls = getattr(transformers, kind)
        config = cls.config_class(**keys)
        config.architectures = [kind]
        config._attn_implementation = "eager"
        model = cls(config).eval()
        order = fill(model)
        losses, norms = train(model, config)
        out = {"model": family, "set": dims, "seq": SEQ, "batch": BATCH, "seed": SEED, "losses": losses, "grad_norms": norms,
               "config": json.loads(config.to_json_string(use_diff=False)), "parameter_order": order,
               "modules": [[path, type(m).__name__] for path, m in model.named_modules(remove_duplicate=False)],
               "parameters": [[path, list(p.shape)] for path, p in model.named_parameters(remove_duplicate=False)]}
        text = json.dumps(out, indent=1)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {losses[0]:.6f} .. {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
