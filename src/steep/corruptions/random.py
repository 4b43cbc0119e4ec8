"""Random numbers addressed by (seed, corruption, severity, image, counter): no state, no order.

A stateful generator would make an image depend on the images drawn before it. Here the bits of image i at
counter j are a hash of i and j alone, so they are the same in every batch, on every thread and device. All of
it is 32-bit integer arithmetic that wraps, and tables computed once in float64; no transcendental function is
evaluated per value, because vectorised and scalar code paths of one library may round those differently.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import torch
from torch import Tensor

# Multipliers of the "triple32" integer hash (C. Wellons, hash-prospector, public domain), as signed 32-bit.
_MULTIPLIERS = tuple(m - (m >> 31 << 32) for m in (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB))
_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment


class Stream:
    """The random numbers of `count` consecutive images, from image `first` of its set on.

    Every method returns one row per image and moves all rows on by as many counters as it used.
    """

    def __init__(
        self, seed: int, name: str, severity: int, first: int, count: int, device: torch.device | str = "cpu"
    ) -> None:
        digest = hashlib.blake2b(f"{seed}/{name}/{severity}".encode(), digest_size=8).digest()
        images = torch.arange(first, first + count, dtype=torch.int64, device=device)
        self._keys = _split(_splitmix64(images, int.from_bytes(digest, "little")))
        self._position = 0

    @property
    def device(self) -> torch.device:
        """The device its numbers live on."""
        return self._keys[0].device

    def __len__(self) -> int:
        """How many images it serves."""
        return len(self._keys[0])

    def bits(self, *shape: int) -> Tensor:
        """Return 32 random bits per element as int32, (n, *shape)."""
        size = math.prod(shape)
        counter = torch.arange(self._position, self._position + size, dtype=torch.int32, device=self.device)
        self._position += size
        first_key, second_key = self._keys
        x = counter[None] ^ first_key[:, None]  # (n, size)
        # Shifts of signed integers drag the sign along. That costs the two inner rounds one bit each, which the
        # next multiplication makes good; only the last round, whose result is used as it is, masks it off.
        shifted = x >> 17
        x.bitwise_xor_(shifted).mul_(_MULTIPLIERS[0])
        x.bitwise_xor_(torch.bitwise_right_shift(x, 11, out=shifted)).add_(second_key[:, None]).mul_(_MULTIPLIERS[1])
        x.bitwise_xor_(torch.bitwise_right_shift(x, 15, out=shifted)).mul_(_MULTIPLIERS[2])
        torch.bitwise_right_shift(x, 14, out=shifted).bitwise_and_(0x3FFFF)
        return x.bitwise_xor_(shifted).view(-1, *shape)

    def uniform(self, *shape: int) -> Tensor:
        """Return float32 numbers of 24 bits in [0, 1), (n, *shape)."""
        return (self.bits(*shape) >> 8).bitwise_and_(0xFFFFFF).to(torch.float32).mul_(2.0**-24)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        """Return float32 numbers in [low, high), (n, *shape)."""
        return self.uniform(*shape).mul_(high - low).add_(low)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return int64 numbers in [low, high), (n, *shape); their bias is below (high - low) / 2**31."""
        wide = (self.bits(*shape) >> 1).bitwise_and_(0x7FFFFFFF).to(torch.int64)
        return wide.mul_(high - low).bitwise_right_shift_(31).add_(low)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal float32 numbers, (n, *shape).

        Each is the scaled sum of two quantiles, drawn with the two halves of 32 bits from a table of 65,536.
        """
        bits, table = self.bits(*shape), _normal_table(self.device)
        low = table.index_select(0, (bits & 0xFFFF).view(-1))
        high = table.index_select(0, (bits >> 16).bitwise_and_(0xFFFF).view(-1))
        return low.add_(high).view(-1, *shape)

    def poisson(self, levels: Tensor, photons: float) -> Tensor:
        """Return int32 Poisson counts of mean photons * level / 255 for uint8 levels (n, ...), same shape.

        Walker's alias method: one table row per level; the low bits choose a column, the high ones whether
        the count is that column or its alias. Probabilities are exact to 2**-22.
        """
        table, column_bits = _poisson_table(photons, self.device)
        bits = self.bits(*levels.shape[1:])
        column = bits & ((1 << column_bits) - 1)
        row = levels.to(torch.int32).bitwise_left_shift_(column_bits).bitwise_or_(column)
        entry = table.index_select(0, row.view(-1)).view(row.shape)
        high = (1 << (32 - column_bits)) - 1
        keep = (bits >> column_bits).bitwise_and_(high) < (entry >> column_bits).bitwise_and_(high)
        return torch.where(keep, column, entry.bitwise_and_((1 << column_bits) - 1))


def _splitmix64(counter: Tensor, start: int) -> Tensor:
    """Hash int64 counters (n,) to 64 bits each with the finaliser of splitmix64, which is a bijection."""
    x = counter * _signed64(_GOLDEN) + _signed64(start)
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * _signed64(multiplier)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split int64 into its low and its high 32 bits, each as int32."""
    low = ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    return low.to(torch.int32), (x >> 32).to(torch.int32)


def _signed64(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (value >> 63 << 64)


@lru_cache(maxsize=8)
def _normal_table(device: torch.device) -> Tensor:
    """Return 65,536 equally likely values, (65536,) float32; the sum of two draws has variance 1.

    Each is the mean of the normal density over its bin, so that the tails keep their weight; the whole is
    then rescaled to the exact variance. Two draws reach 6 standard deviations.
    """
    half = 1 << 15
    edges = torch.special.ndtri(torch.arange(half, dtype=torch.float64, device="cpu") / (2 * half))  # -inf ... 0
    density = torch.exp(-edges.square() / 2) / math.sqrt(2 * math.pi)
    peak = torch.tensor([1 / math.sqrt(2 * math.pi)], dtype=torch.float64, device="cpu")
    upper = torch.cat([density[1:], peak])
    means = (density - upper) * (2 * half)  # negative half, ascending
    means = means / means.square().mean().sqrt() / math.sqrt(2)
    return torch.cat([means, -means.flip(0)]).to(torch.float32).to(device)


@lru_cache(maxsize=32)
def _poisson_table(photons: float, device: torch.device) -> tuple[Tensor, int]:
    """Return alias tables for the 256 means photons * level / 255, packed into (256 * columns,) int32."""
    largest = photons + 10 * math.sqrt(photons) + 20  # nothing above this in 2**40 draws
    column_bits = max(math.ceil(math.log2(largest)), 6)
    columns = 1 << column_bits
    means = torch.arange(256, dtype=torch.float64, device="cpu")[:, None] * (photons / 255)
    counts = torch.arange(columns, dtype=torch.float64, device="cpu")[None]
    mass = torch.exp(torch.xlogy(counts, means) - means - torch.lgamma(counts + 1))  # (256, columns)
    keep, alias = _alias(mass / mass.sum(1, keepdim=True) * columns)
    top = (1 << (32 - column_bits)) - 1
    packed = (keep * (top + 1)).round().clamp(max=top).to(torch.int64) << column_bits | alias
    return _split(packed)[0].view(-1).to(device), column_bits


def _alias(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Build one alias table per row of weights (r, k), whose rows have mean 1: (keep share, alias).

    All rows advance together: each step settles one column that is short, topping it up from the one that
    is being spent; a spent one that falls short itself is settled next.
    """
    rows, columns = weights.shape
    row = torch.arange(rows, device="cpu")
    left, order = weights.sort(dim=1)  # ascending: short columns first, donors last
    alias = torch.arange(columns, device="cpu").repeat(rows, 1)
    current = torch.zeros(rows, dtype=torch.int64, device="cpu")  # the column being settled
    waiting = current + 1  # the next short one
    donor = current + columns - 1
    for _ in range(columns - 1):
        met = donor < waiting  # only the current column is left; it weighs 1 up to rounding and stays as it is
        alias[row, current] = torch.where(met, current, donor)
        left[row, donor] -= torch.where(met, 0.0, 1 - left[row, current])
        drained = left[row, donor] < 1
        current, waiting, donor = (
            torch.where(met, current, torch.where(drained, donor, waiting)),
            torch.where(met | drained, waiting, waiting + 1),
            torch.where(met | ~drained, donor, donor - 1),
        )
    keep = torch.empty_like(left).scatter_(1, order, left.clamp(0, 1))
    target = torch.empty_like(alias).scatter_(1, order, order.gather(1, alias))
    return keep, target
