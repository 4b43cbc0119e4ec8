"""`Adapter.peek`: a second opinion that leaves no trace."""

import pytest
import torch

import steep
from contract import identical
from nets import net
from steep.core.views import mirror


@pytest.mark.parametrize("method", ["source", "tent", "dua", "infuse", "cotta", "t3a", "lame", "roid"])
def test_peeking_leaves_no_trace(method: str) -> None:
    batches = torch.rand(3, 64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    quiet, peeked = (steep.adapt(net(), method, seed=3) for _ in range(2))
    for x in batches:
        expected, answer = quiet(x), peeked(x)
        assert torch.equal(answer, expected)
        last = peeked.last
        assert peeked.peek(x, mirror).shape == answer.shape
        assert peeked.last == last
    assert identical(quiet.state_dict(), peeked.state_dict())


def test_an_answer_after_the_update_is_what_peeking_shows() -> None:
    x = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    adapter = steep.adapt(net(), "tent", predict="after", lr=0.1)
    answer = adapter(x)
    assert torch.equal(adapter.peek(x), answer)
    assert torch.equal(adapter.peek(x, mirror), adapter.peek(mirror(x)))
    assert not torch.allclose(adapter.peek(x), steep.adapt(net(), "bn")(x))
