"""Numbers made from a counter, the same on every machine: splitmix64 (tests/data/goldens/README.md)."""

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def signed(value):
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def mixed(z):
    z = ((z ^ (z >> 30)) * FIRST) & MASK
    z = ((z ^ (z >> 27)) * SECOND) & MASK
    return z ^ (z >> 31)


def output(seed, n):
    return mixed((seed + (n + 1) * GAMMA) & MASK)


def top_bits(seed, count, bits):
    """The highest `bits` bits of outputs 0..count-1 of the generator, as int64 (torch's shifts keep the sign: it is masked off)."""
    import torch

    def right(z, n):
        return (z >> n) & ((1 << (64 - n)) - 1)

    z = torch.arange(1, count + 1, dtype=torch.int64) * signed(GAMMA) + signed(seed)
    z = (z ^ right(z, 30)) * signed(FIRST)
    z = (z ^ right(z, 27)) * signed(SECOND)
    return right(z ^ right(z, 31), 64 - bits)
