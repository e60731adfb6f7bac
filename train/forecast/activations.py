"""The bytes that autograd keeps of the forward pass of a DiT, without torch.

Source: the tensors that the operations of `train/model` save, read one by one. Tests compare these
sums with the storages that torch saves. Under autocast on a GPU, layer norms and the RMS norms of
heads read and write float32, and so do sums with a float32 operand.
"""

from dataclasses import dataclass

from configs.schema import Pretrain
from train.model.flops import TIME_CHANNELS, mean_tokens, mlp_hidden, tokens

PRECISION_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
# Of a norm per token: mean and inverse deviation, or the inverse root mean square.
_NORM_BYTES = {"layer": 8, "rms": 4}


@dataclass(frozen=True, kw_only=True)
class SavedBytes:
    """Bytes kept for the backward pass: `image` per image of the micro batch, `once` in total."""

    image: float
    once: float = 0.0


def is_modulated(config: Pretrain) -> bool:
    """Return whether the condition is in the norms (adaLN)."""
    return config.model.conditioning != "in_context"


def residual_size(config: Pretrain) -> int:
    """Return the bytes per number of the residual stream, float32 if a float32 is added to it."""
    return PRECISION_BYTES[config.train.precision] if is_modulated(config) else 4


def block_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """Return what one block saves if it is neither recomputed nor compiled, without its weights."""
    model, e, r = config.model, PRECISION_BYTES[config.train.precision], residual_size(config)
    d, adaln = model.width, is_modulated(config)
    mlp = {"gelu": 2, "swiglu": 4}[model.mlp] * e * mlp_hidden(config) / tensor
    if model.mlp == "swiglu" and e < 4:
        mlp += e * d  # two linear layers read the same float32 input: each makes a copy
    # Each half saves the input of the norm, its mean and inverse deviation, the input of the linear
    # layer, and for adaLN also the inputs of the scale and of the gate.
    half = 4 * d + _NORM_BYTES[model.norm] + e * d + (4 * d + r * d) * adaln
    token = 2 * half + _attention(config) / tensor + mlp
    once = 0.0
    if model.positions == "rope" and e < 4 and not model.qk_norm:
        once = 4 * e * tokens(config) * (d // model.heads)  # the RoPE table, cast for q and for k
    return SavedBytes(image=mean_tokens(config) * token + _condition(config) * adaln, once=once)


def _attention(config: Pretrain) -> int:
    """Return the bytes per token that attention saves between its two linear layers."""
    model, e = config.model, PRECISION_BYTES[config.train.precision]
    kept = 4 * e * model.width + 4 * model.heads  # q, k, v, the output; the log-sum-exp
    if model.qk_norm:
        kept += 8 * model.heads
        kept += 8 * model.width * (e < 4)  # in lower precision, q and k cast to float32
    if model.qk_norm or model.positions == "rope":
        kept += 2 * e * model.width  # q and k are no longer views of the qkv output
    if model.value_residual:
        # But in the first block, v is not such a view, either: nothing may need the qkv output.
        needed = e == 4 if model.qk_norm else model.positions == "sincos"
        kept += (1 if needed else -2) * e * model.width * (model.depth - 1) // model.depth
    return kept


def _condition(config: Pretrain) -> int:
    """Return the bytes per image that the modulation of a block saves: both scales and gates."""
    d, e = config.model.width, PRECISION_BYTES[config.train.precision]
    gates = 8 * d if residual_size(config) > e else 6 * e * d
    return 8 * d + gates


def checkpoint_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """Return what a fully recomputed block keeps: its input tokens."""
    return SavedBytes(image=mean_tokens(config) * residual_size(config) * config.model.width)


def operations_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """Return what a block keeps if all but matrix products and attention is recomputed."""
    model, e = config.model, PRECISION_BYTES[config.train.precision]
    d, hidden = model.width, mlp_hidden(config) * (1 + (model.mlp == "swiglu"))
    split = (e * (4 * d + hidden) + 4 * model.heads) / tensor
    token = residual_size(config) * d + split + 2 * e * d
    product = model.conditioning == "adaln"
    return SavedBytes(image=mean_tokens(config) * token + 6 * e * d * product / tensor)


def edges_kept(config: Pretrain) -> SavedBytes:
    """Return what is saved before and after the blocks, and the batch itself."""
    model, data, e = config.model, config.data, PRECISION_BYTES[config.train.precision]
    d, patches = model.width, (data.size // model.patch) ** 2
    pixels = 4 * data.channels * data.size**2
    adaln = is_modulated(config)
    time = e * (TIME_CHANNELS + 3 * d) + 4 * d + 8 + 4 * d * adaln
    # The image, its noise and the error in float32, and the patches that the first layer reads.
    fused = 2 * e * d * tokens(config) * (model.routing.kind == "sprint")
    plain = patches * _last_norm(config) + time + 3 * pixels + pixels * e // 4
    return SavedBytes(image=plain + fused)


def _last_norm(config: Pretrain) -> int:
    """Return the bytes per token that are saved between the blocks and the last layer."""
    d, e = config.model.width, PRECISION_BYTES[config.train.precision]
    return 4 * d + _NORM_BYTES[config.model.norm] + e * d + 4 * d * is_modulated(config)


def edges_work(config: Pretrain) -> float:
    """Return the bytes per image that the backward pass of the last norm adds to what is saved.

    The gradients of its output and input in float32, and for adaLN their product.
    """
    d, e = config.model.width, PRECISION_BYTES[config.train.precision]
    return tokens(config) * d * (8 + e + 4 * is_modulated(config))


def block_work(config: Pretrain, *, tensor: int = 1) -> float:
    """Return the bytes per image that the backward pass of a recomputed block adds.

    The gradient of the hidden layer, less the memory already freed after the blocks.
    """
    hidden = PRECISION_BYTES[config.train.precision] * mlp_hidden(config) / tensor
    return tokens(config) * (hidden + 4 * config.model.width - _last_norm(config))


def compiled_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """Return what a compiled block saves: all that is costlier to recompute than to read.

    Source: the cut that the partitioner of torch.compile makes through these blocks.
    """
    model, e = config.model, PRECISION_BYTES[config.train.precision]
    d, adaln = model.width, is_modulated(config)
    mlp = {"gelu": 2, "swiglu": 3}[model.mlp] * e * mlp_hidden(config) / tensor
    norms = 2 * (_NORM_BYTES[model.norm] + e * d)
    token = residual_size(config) * d + norms + e * d * (1 + adaln) + mlp
    attention = _attention(config) - 8 * d * (model.qk_norm and e < 4)
    return SavedBytes(image=mean_tokens(config) * (token + attention / tensor) + 6 * e * d * adaln)
