"""Attention of a prefill, dense and sparse.

The sparse one is our own, on PyTorch's FlexAttention, and not MInference's code.

What MInference, the source's reference, describes is rebuilt at the granularity of FlexAttention's blocks of 128 x 128:

    vertical-slash   the last 64 queries say which columns and diagonals matter: VERTICAL and SLASH tokens of them
    block-sparse     means of 128 queries and of 128 keys say which blocks matter: for each row the best, TOPK tokens

A head has one of the two, chosen once, on other tokens than those measured (`dominant`), as MInference chooses
offline. The selection for the tokens at hand is part of every call, and of its time. The diagonal is always kept.
MInference keeps single columns and diagonals, and blocks of 64; here whole blocks of 128 are kept, as many as hold the
same tokens.

q (1, heads, n, d), k and v (1, key-value heads, n, d), n a multiple of 128.
"""

import contextlib
import functools
import inspect
import warnings
from math import ceil

from kernels.lazy import Lazy, torch

sdpa, flex = Lazy("torch.nn.attention"), Lazy("torch.nn.attention.flex_attention")

BLOCK = 128
LAST = 64  #: queries that choose columns and diagonals
#: Tokens that are kept, MInference's own defaults: 1,000 columns, 6,096 diagonals, 100 blocks of 64.
VERTICAL, SLASH, TOPK = 1000, 6096, 6400
#: Ours leave attention dense where the pattern may keep more than this share of the causal blocks: selection and
#: FlexAttention's generated kernel cost more than what they leave out saves.
WORTH = 0.55
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def kept_blocks(tokens: int, n: int) -> int:
    """Return how many blocks of BLOCK hold so many tokens, as many as there are at most."""
    return min(ceil(tokens / BLOCK), ceil(n / BLOCK))


def most_kept(n: int) -> float:
    """Return the share of the causal blocks that a pattern keeps at most."""
    each = max(kept_blocks(VERTICAL, n) + kept_blocks(SLASH, n), kept_blocks(TOPK, n) + 1)
    rows = ceil(n / BLOCK)
    return sum(min(row + 1, each) for row in range(rows)) / (rows * (rows + 1) / 2)


# ---------------------------------------------------------------- which blocks matter


def vertical_slash(q, k):
    """Return bool (heads, rows, rows) of blocks.

    The best columns and diagonals for the last queries, on the diagonal and under it.
    """
    heads, n, d = q.shape[1:]
    groups, rows, last = heads // k.shape[1], n // BLOCK, min(LAST, n)
    # Query heads that share keys are rows of one product.
    tail = q[0, :, -last:].reshape(k.shape[1], groups * last, d)
    score = torch.matmul(tail, k[0].transpose(1, 2)).float().view(heads, last, n) * d**-0.5
    at = torch.arange(n, device=q.device)
    score = torch.softmax(score.masked_fill_(at > at[-last:, None], float("-inf")), -1)
    columns = score.sum(1).view(heads, rows, BLOCK).sum(-1)
    # Diagonals: with `last` zeros before and after, and rows of one more, column j of query i becomes j - i + last:
    # those that are as far from their query are under each other.
    frame = torch.nn.functional.pad(score, (last, 0)).view(heads, -1)
    frame = torch.nn.functional.pad(frame, (0, last)).view(heads, last, n + last + 1)
    diagonals = frame.sum(1)[:, 1 : n + 1].flip(1).reshape(heads, rows, BLOCK).sum(-1)
    vertical, slash = (_largest(x, kept_blocks(tokens, n)) for x, tokens in ((columns, VERTICAL), (diagonals, SLASH)))
    row = at[:rows]
    return _under_diagonal(vertical[:, None, :] | slash[:, (row[:, None] - row).clamp(min=0)])


def block_sparse(q, k):
    """Return bool (heads, rows, rows) of blocks: for each row the best by the means of its queries and of the keys."""
    heads, n, d = q.shape[1:]
    groups, rows = heads // k.shape[1], n // BLOCK
    mean_q = q[0].reshape(heads, rows, BLOCK, d).mean(2)
    mean_k = k[0].reshape(-1, rows, BLOCK, d).mean(2)
    score = torch.matmul(mean_q.view(-1, groups * rows, d), mean_k.transpose(1, 2)).float().view(heads, rows, rows)
    score.masked_fill_(torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    return _under_diagonal(_largest(score, kept_blocks(TOPK, n)))


def _largest(score, count: int):
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, score.topk(count, -1).indices, True)


def _under_diagonal(kept):
    return kept.tril() | torch.eye(kept.shape[-1], dtype=torch.bool, device=kept.device)


def select(q, k, is_vertical):
    """Return bool (heads, rows, rows) of blocks that are kept; is_vertical: bool (heads,), which pattern a head has."""
    return torch.where(is_vertical[:, None, None], vertical_slash(q, k), block_sparse(q, k))


def dominant(q, k):
    """Return bool (heads,).

    Whether vertical-slash holds more of a head's attention than block-sparse, by the exact attention of at most 256
    queries spread over the sequence; done once, not part of any time.
    """
    heads, n, d = q.shape[1:]
    at = torch.linspace(n // 2, n - 1, min(256, n // 2), device=q.device).long()
    score = torch.matmul(q[0, :, at], k[0].repeat_interleave(heads // k.shape[1], 0).transpose(1, 2)).float() * d**-0.5
    score.masked_fill_(torch.arange(n, device=q.device) > at[:, None], float("-inf"))
    score = torch.softmax(score, -1).view(heads, len(at), n // BLOCK, BLOCK).sum(-1)
    held = [(score * pattern(q, k)[:, at // BLOCK]).sum((1, 2)) for pattern in (vertical_slash, block_sparse)]
    return held[0] >= held[1]


# ---------------------------------------------------------------- the products


def causal(batch, head, q_at, k_at):
    """Return FlexAttention's mask inside a block of the diagonal."""
    return q_at >= k_at


def block_mask(kept):
    """Describe the blocks (heads, rows, rows) to FlexAttention: those of the diagonal masked, the others whole."""
    heads, rows, _ = kept.shape
    row = torch.arange(rows, device=kept.device, dtype=torch.int32)
    whole = kept & (row[:, None] > row)
    # Those that are kept first, in their order: a sort of numbers that are all different.
    order = torch.where(whole, row, row + rows).sort(-1).values
    diagonal = torch.zeros(heads, rows, rows, dtype=torch.int32, device=kept.device)
    diagonal[:, :, 0] = row
    known = inspect.signature(flex.BlockMask.from_kv_blocks).parameters
    return flex.BlockMask.from_kv_blocks(
        torch.ones(1, heads, rows, dtype=torch.int32, device=kept.device),
        diagonal[None],
        whole.sum(-1, dtype=torch.int32)[None],
        torch.where(order >= rows, order - rows, order).int()[None],
        BLOCK_SIZE=BLOCK,
        mask_mod=causal,
        **{name: False for name in ("compute_q_blocks",) if name in known},  # of gradients alone
    )


@functools.cache
def compiled():
    """Return FlexAttention, compiled once for each shape."""
    return torch.compile(flex.flex_attention, dynamic=False)


def over(q, k, v, kept):
    """Return attention over the blocks that are kept, (1, heads, n, d); on the CPU by a mask, slowly."""
    if q.is_cuda:
        return compiled()(q, k, v, block_mask=block_mask(kept), enable_gqa=q.shape[1] != k.shape[1])
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=kept.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2).tril()[None]
    )


def dense(q, k, v, backend: str):
    """Return PyTorch's SDPA, causal, by one of its backends, named with "+repeat" where keys are repeated for it."""
    name, _, repeat = backend.partition("+")
    if repeat:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    with sdpa.sdpa_kernel([getattr(sdpa.SDPBackend, name)]):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )


def fastest_backend(q, k, v) -> str:
    """Return SDPA's fastest backend on these tensors, of those that take them; "MATH" on the CPU."""
    if not q.is_cuda:
        return "MATH"
    times = {}
    for name in (b + more for b in BACKENDS for more in ("", "+repeat")):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # A backend says that it does not take the shapes: by an error, and by warnings why.
        with contextlib.suppress(RuntimeError), warnings.catch_warnings(action="ignore"):
            dense(q, k, v, name)
            begin.record()
            dense(q, k, v, name)
            dense(q, k, v, name)
            end.record()
            end.synchronize()
            times[name] = begin.elapsed_time(end)
    return min(times, key=times.__getitem__)
