"""What is measured of a step is what was sent, whatever its memory is used for afterwards."""

from typing import Any

import pytest
import ranks
from given_gradients import Given
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients import compress_gradients

SHAPES = ((120, 60), (7,), (70, 70))
ALL_IS_SENT = ("dense", "feedback(dense)", "warmup(topk(0.01), steps=9)", "feedback(fp16)")


def _trained(text: str, **options: Any) -> Any:
    import torch

    model = DistributedDataParallel(Given(SHAPES))
    compression = compress_gradients(model, text, observe=1, **options)
    for step in range(3):
        generator = torch.Generator().manual_seed(10 * step + torch.distributed.get_rank())
        given = {f"p{i}": torch.randn(s, generator=generator) for i, s in enumerate(SHAPES)}
        model(given).backward()
    return compression


def _measured() -> list[tuple[str, float, float]]:
    found = []
    for text in ALL_IS_SENT:
        compression = _trained(text)
        last = compression.metrics.last
        assert compression.metrics.count == 3
        found.append((text, last.cosine, max(one.error.rel_l2 for one in last.tensors)))
        compression.close()
    return found


def test_what_sends_everything_has_no_error():
    for found in ranks.run(_measured):
        for text, cosine, error in found:
            assert cosine == pytest.approx(1), text
            assert error < 1e-3, text


def _summaries() -> tuple[str, str]:
    sparse = _trained("topk(0.02, values=affine(8), indices=gaps)")
    bounded = _trained("error_bounded(max_rel_l2=0.1)")
    with pytest.raises(GradientError, match=r"of error_bounded.*compressor is topk\(0.02, values"):
        sparse.load_state_dict({**sparse.state_dict(), **_only_compressor(bounded)})
    sparse.load_state_dict({**sparse.state_dict(), **_only_compressor(bounded)}, strict=False)
    return sparse.summary(), bounded.summary()


def _only_compressor(compression: Any) -> dict[str, str]:
    return {"compressor": compression.state_dict()["compressor"]}


def test_a_summary_shows_recipes_as_users_write_them():
    for sparse, bounded in ranks.run(_summaries):
        assert " topk(0.02, values=affine(8)) " in sparse
        assert " error_bounded(max_rel_l2=0.1) " in bounded
        assert max(map(len, [*sparse.splitlines(), *bounded.splitlines()])) < 140
