"""The command line of `train_ddp.py`."""

from __future__ import annotations

import argparse
from pathlib import Path

from train_ddp_data import SOURCES
from train_ddp_models import MODELS

from tensorcomp import TensorcompError
from tensorcomp.gradients import parse_compressor

DATA = {"mlp": "digits", "cnn": "mnist", "resnet18": "mnist", "transformer": "text"}
RATES = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}
PLAIN = "none"
RESIDUALS = "to save: those of each process, or their mean, which any number of processes resumes"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Train a model on several processes that send compressed gradients."
    )
    add = parser.add_argument
    add("--model", choices=MODELS, default="mlp", help="%(default)s, if not given")
    add("--data", choices=SOURCES, help="what the model is for, if not given")
    add(
        "--compressor",
        default="topk(0.01, values=affine(8))",
        help="of gradients, such as int8 or dgc(0.001); %(default)s, if not given; "
        f"{PLAIN}: DistributedDataParallel alone",
    )
    add(
        "--feedback",
        choices=("auto", "yes", "no"),
        default="auto",
        help="of errors; %(default)s, if not given",
    )
    add("--optimizer", choices=RATES, default="sgd", help="%(default)s, if not given")
    add("--lr", type=float, help="the highest learning rate; the optimizer's own, if not given")
    add(
        "--momentum",
        type=float,
        default=0.9,
        help="of SGD (%(default)s); 0 where the compressor has it",
    )
    add("--epochs", type=int, default=5, help="that the learning rate is planned for (%(default)s)")
    add("--stop", type=int, help="end after this epoch already, to be resumed")
    add("--batch", type=int, default=16, help="examples a process and step (%(default)s)")
    add("--seed", type=int, default=0)
    add("--save", type=Path, metavar="FILE", help="write all that goes on, after every epoch")
    add("--residuals", choices=("exact", "mean"), default="exact", help=RESIDUALS)
    add("--resume", type=Path, metavar="FILE", help="go on from what was saved")
    add("--tensorboard", type=Path, metavar="FOLDER", help="write metrics of every step")
    add("--workers", type=int, default=2, help="processes to start, without torchrun (%(default)s)")
    add("--threads", type=int, help="of a process; its share of the CPUs, if not given")
    options = parser.parse_args(arguments)
    options.data = options.data or DATA[options.model]
    if (options.model == "transformer") != (options.data == "text"):
        parser.error(f"{options.model} does not learn {options.data}")
    if options.compressor != PLAIN:
        try:
            parse_compressor(options.compressor)
        except TensorcompError as error:
            parser.error(f"--compressor: {error}")
    if options.resume is not None and not options.resume.is_file():
        parser.error(f"--resume: there is no file {options.resume}")
    return options
