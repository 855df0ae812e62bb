import pytest
import torch
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensorcomp.lightning import SeriesIO

pytestmark = pytest.mark.filterwarnings("ignore")  # the host's own


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def fit(folder, epochs, plugin=None, ckpt_path=None, **saving):
    pl.seed_everything(0)
    model = Module()
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[plugin] if plugin is not None else None,
        callbacks=[ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, **saving)],
    )
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    trainer.fit(model, loader, ckpt_path=ckpt_path)
    return model.state_dict()


def is_same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


@pytest.mark.parametrize("wrap", [lambda plugin: plugin, AsyncCheckpointIO], ids=["plain", "async"])
def test_checkpoints_are_those_of_lightning(tmp_path, wrap):
    plain, kept = tmp_path / "plain", tmp_path / "kept"
    plugin = SeriesIO(tmp_path / "series")
    expected = fit(plain, 2)
    assert is_same(expected, fit(kept, 2, wrap(plugin)))
    assert [step.step for step in plugin.series.steps] == [4, 8]
    for name in ("epoch=0.ckpt", "epoch=1.ckpt"):
        found = plugin.load_checkpoint(kept / name, weights_only=False)
        ordinary = plugin.load_checkpoint(plain / name, weights_only=False)
        for key in ("state_dict", "optimizer_states", "lr_schedulers", "loops"):
            assert is_same(found[key], ordinary[key]), key
    plugin.remove_checkpoint(kept / "epoch=0.ckpt")
    assert not (kept / "epoch=0.ckpt").exists()
    assert len(plugin.series.steps) == 2
    with pytest.raises(FileNotFoundError):
        plugin.load_checkpoint(kept / "epoch=0.ckpt")


def test_training_goes_on_from_a_step(tmp_path):
    plugin = SeriesIO(tmp_path / "series")
    found = []
    for folder, io in ((tmp_path / "kept", plugin), (tmp_path / "plain", None)):
        fit(folder, 1, io)
        found.append(fit(folder, 2, io, ckpt_path=folder / "epoch=0.ckpt"))
    assert is_same(*found)


def test_two_checkpoints_of_one_step_are_two_steps(tmp_path):
    plugin = SeriesIO(tmp_path / "series")
    fit(tmp_path / "kept", 1, plugin, save_last=True)
    assert [step.step for step in plugin.series.steps] == [4, 5]
    for name in ("epoch=0.ckpt", "last.ckpt"):
        assert (
            plugin.load_checkpoint(tmp_path / "kept" / name, weights_only=False)["global_step"] == 4
        )
