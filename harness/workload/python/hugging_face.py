"""A model of `transformers` from its config.json, on the meta device unless weights are wanted, with the usual loss."""
import json
import os

from user_model import Model, Refused


def read_config(path):
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8") as f:
            fields = json.load(f)
    except OSError as error:
        raise Refused(f"[export] {file} cannot be read ({error.strerror}); give a config.json, or a directory that holds one") from error
    except ValueError as error:
        raise Refused(f"[export] {file} is not JSON ({error}); give the config.json of a model") from error
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise Refused(f"[export] {file} has no model_type; give the config.json of a model of transformers")
    return file, fields


def config_of(file, fields):
    from transformers import CONFIG_MAPPING

    kind = fields["model_type"]
    if kind not in CONFIG_MAPPING:
        raise Refused(f"[export] {file}: this transformers has no model type {kind}; install a newer one, or export your own module")
    fields = {k: v for k, v in fields.items() if k != "quantization_config"}   # shapes are those of the plain weights
    try:
        return CONFIG_MAPPING[kind].from_dict(fields)
    except Exception as error:
        raise Refused(f"[export] {file}: transformers refuses it: {str(error).strip().splitlines()[0]}; mend the file") from error


def model_class(file, fields):
    import transformers

    names = fields.get("architectures") or []
    name = names[0] if names else None
    found = getattr(transformers, name, None) if name else transformers.AutoModelForCausalLM
    if found is None:
        raise Refused(f"[export] {file}: this transformers has no class {name}; install a newer one, or export your own module")
    return name or "AutoModelForCausalLM", found


def build(cls, config, dtype):
    options = {"attn_implementation": "sdpa", "dtype": dtype}
    # The loop over experts asks which of them a token reached; products over all of them do not.
    for more in ({"experts_implementation": "batched_mm"}, {}):
        for attention in ("sdpa", "eager"):
            options.update(attn_implementation=attention)
            try:
                make = getattr(cls, "from_config", None) or cls._from_config
                return make(config, **options, **more)
            except (TypeError, ValueError, KeyError) as error:
                last = error
    raise Refused(f"[export] transformers does not build {cls.__name__}: {str(last).strip().splitlines()[0]}; mend the config")


def patch(model, forward):
    """Names and classes of modules stay those of the model itself: the loss becomes part of its own forward."""
    model.forward = forward
    return model


def cross_entropy(logits, targets):
    import torch

    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), targets.reshape(-1))


def vocabulary(config):
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return text.vocab_size


def tokens(config, batch, seq):
    import torch

    return (torch.arange(batch * seq) * 7 % vocabulary(config)).reshape(batch, seq)


def decoder(model, config, batch, seq):
    original = model.forward

    def forward(input_ids, targets):
        return cross_entropy(original(input_ids=input_ids, use_cache=False).logits, targets)

    ids = tokens(config, batch, seq)
    return forward, {"input_ids": ids, "targets": ids.clone()}, {"input_ids": "tokens", "targets": "next_tokens"}


def encoder(model, config, batch, seq):
    original = model.forward

    def forward(input_ids, targets):
        return cross_entropy(original(input_ids=input_ids).logits, targets)

    ids = tokens(config, batch, seq)
    return forward, {"input_ids": ids, "targets": ids.clone()}, {"input_ids": "tokens", "targets": "next_tokens"}


def encoder_decoder(model, config, batch, seq):
    original = model.forward

    def forward(input_ids, targets):
        out = original(input_ids=input_ids, decoder_input_ids=input_ids, use_cache=False)
        return cross_entropy(out.logits, targets)

    ids = tokens(config, batch, seq)
    return forward, {"input_ids": ids, "targets": ids.clone()}, {"input_ids": "tokens", "targets": "next_tokens"}


def image_classifier(model, config, batch, seq):
    import torch

    original = model.forward

    def forward(pixel_values, targets):
        return cross_entropy(original(pixel_values=pixel_values).logits, targets)

    size = config.image_size if isinstance(config.image_size, (tuple, list)) else (config.image_size,) * 2
    pixels = torch.linspace(-1, 1, batch * config.num_channels * size[0] * size[1]).reshape(batch, config.num_channels, *size)
    labels = torch.arange(batch) % config.num_labels
    return forward, {"pixel_values": pixels, "targets": labels}, {}


# What the class's name says of its inputs and of its loss; the first that fits.
KINDS = (
    (("ForCausalLM", "LMHeadModel"), decoder),
    (("ForMaskedLM", "ForPreTraining"), encoder),
    (("ForImageClassification",), image_classifier),
)


def kind_of(name, config):
    if getattr(config, "is_encoder_decoder", False):
        return encoder_decoder
    for ends, kind in KINDS:
        if name.endswith(ends):
            return kind
    if name.endswith("ForConditionalGeneration"):
        return decoder   # text alone
    raise Refused(f"[export] {name} has no loss that is known here (decoders, encoder-decoders, masked models, image classifiers have); "
                  "write a function that returns (module, inputs, loss) and export FILE.py:FUNCTION")


def load_hugging_face(path, batch, seq, weights, dtype):
    """-> Model. Raises Refused. Without `weights` everything but small buffers is on the meta device."""
    import torch

    try:
        import transformers
    except ImportError as error:
        raise Refused(f"[export] --hf needs transformers in {os.sys.executable}; install it there, or set SHARDSCOPE_PYTHON", 3) from error
    transformers.logging.set_verbosity_error()
    file, fields = read_config(path)
    config = config_of(file, fields)
    name, cls = model_class(file, fields)
    kind = kind_of(name, config)
    batch, seq = batch or 1, seq or 64
    most = getattr(config.get_text_config(), "max_position_embeddings", None) or seq
    if seq > most:
        raise Refused(f"[export] --seq {seq} is more than the {most} positions of {file}; use at most {most}")
    has_files = os.path.isdir(path) and any(n.endswith((".safetensors", ".bin")) for n in os.listdir(path))
    if weights and has_files:
        model = cls.from_pretrained(path, attn_implementation="sdpa", dtype=dtype)
    elif weights:
        torch.manual_seed(0)
        model = build(cls, config, dtype)
    else:
        with torch.device("meta"):
            model = build(cls, config, dtype)
    model.train()
    forward, inputs, roles = kind(model, config, batch, seq)
    made = Model(patch(model, forward), inputs, None, batch, None if kind is image_classifier else seq, os.path.basename(file))
    made.roles = roles
    made.high = {n: config.num_labels if kind is image_classifier else vocabulary(config) for n in inputs}
    return made
