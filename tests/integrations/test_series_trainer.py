import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from tensorcomp.errors import CheckpointError
from tensorcomp.hub import SeriesCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # the hosts' own


class Stop(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


def trainer(folder, *callbacks, steps=6):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    data = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(1))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=2,
        save_total_limit=1,
        logging_steps=1,
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    dataset = [{"input_ids": row, "labels": row} for row in data]
    model = GPT2LMHeadModel(config)
    return Trainer(model, arguments, train_dataset=dataset, callbacks=list(callbacks))


def losses(one):
    return {log["step"]: log["loss"] for log in one.state.log_history if "loss" in log}


def test_a_run_goes_on_from_the_series_bit_by_bit(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.train()
    keeper = SeriesCallback(tmp_path / "series")
    assert keeper.restore(tmp_path / "run") is None
    trainer(tmp_path / "run", keeper, Stop(4)).train()
    saved = {p.name: p.read_bytes() for p in (tmp_path / "run/checkpoint-4").iterdir()}
    (tmp_path / "run/checkpoint-4/model.safetensors").write_bytes(b"torn")
    path = keeper.restore(tmp_path / "run")
    assert path == str(tmp_path / "run/checkpoint-4")
    assert saved == {p.name: p.read_bytes() for p in (tmp_path / "run/checkpoint-4").iterdir()}
    resumed = trainer(tmp_path / "run", keeper)
    resumed.train(resume_from_checkpoint=path)
    assert losses(resumed) == losses(whole)
    assert [step.step for step in keeper.series.steps] == [2, 4, 6]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["checkpoint-6"]
    older = keeper.restore(tmp_path / "again", step=2)
    state = json.loads((tmp_path / "again/checkpoint-2/trainer_state.json").read_text())
    assert state["global_step"] == 2
    with pytest.raises(CheckpointError, match="has step 6 already"):
        trainer(tmp_path / "again", keeper).train(resume_from_checkpoint=older)
