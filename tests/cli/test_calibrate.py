"""``tensorcomp calibrate``: the file it writes, what it says, and what it refuses."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

import tensorcomp_cli.main
from tensorcomp.pruning import Statistics, calibrate

torch.set_num_threads(1)

NET = """
import numpy
import torch
from torch import nn

import sizes


class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(sizes.INPUTS, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


class WithUnused(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.unused = Net(), nn.Linear(4, 4)

    def forward(self, inputs):
        return self.net(inputs)


class Store:
    model = Net()


def batches(count=3):
    for number in range(count):
        yield torch.full((5, sizes.INPUTS), 1.0 + number), torch.arange(5) % 3


class Loader:
    def __iter__(self):
        return batches()

    def __len__(self):
        return 3


listed = list(batches())


def shuffled():
    parts = [torch.cat(each) for each in zip(*batches())]
    own = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(*parts)
    return torch.utils.data.DataLoader(data, 5, shuffle=True, generator=own)


def square(model, batch):
    return model(batch[0]).square().mean()


def broken_factory():
    raise RuntimeError("no such\\nlayer")


def broken_loader():
    yield from batches(1)
    raise OSError("disk gone")


def broken_loss(model, batch):
    raise ZeroDivisionError


def images():
    return [(torch.ones(2, 99), torch.tensor([0, 1]))]


def empty():
    return []


def nan_loss(model, batch):
    return model(batch[0]).sum() * float("nan")


def exits():
    raise SystemExit(3)


def chatty():
    print("loading weights")
    return Net()


def chatty_batches():
    for batch in batches(1):
        print("a minibatch")
        yield batch[0][:1], batch[1][:1]


number = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Return the name of a module in the current folder, and forget it afterwards."""
    folder = tmp_path / "project"
    folder.mkdir()
    name = "net_of_calibration"
    (folder / f"{name}.py").write_text(NET)
    (folder / "sizes.py").write_text("INPUTS = 6\n")
    monkeypatch.chdir(folder)
    path = list(sys.path)
    yield name
    assert sys.path == path
    for module in list(sys.modules):
        if str(tmp_path) in (getattr(sys.modules[module], "__file__", None) or ""):
            del sys.modules[module]


def calibrating(code, model="Net", data="listed"):
    return ["calibrate", "--model", f"{code}:{model}", "--data", f"{code}:{data}"]


def expected(model=None):
    from net_of_calibration import Net, listed

    return calibrate(model or Net(), listed)


def same(found, wanted):
    assert found.arrays.keys() == wanted.arrays.keys()
    for statistic, arrays in wanted.arrays.items():
        assert list(found.arrays[statistic]) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found.of(statistic, name), array)


@pytest.mark.parametrize("model", ["Net", "Store.model"])
@pytest.mark.parametrize("data", ["batches", "Loader", "listed"])
def test_writes_what_the_call_measures(call, code, model, data):
    done = call.ok(*calibrating(code, model, data), "-o", "s.safetensors")
    assert done.stdout.splitlines()[0] == (
        "s.safetensors: gradient, taylor, snip, grasp, fisher, input_norm"
    )
    words = "2 tensors of 36 weights, 3 minibatches of 15 samples"
    assert done.stdout.splitlines()[1].startswith(words)
    found = Statistics.load("s.safetensors")
    assert (found.batches, found.samples) == (3, 15)
    same(found, expected())


def test_a_loader_with_a_generator_of_its_own_repeats_its_order(call, code):
    options = ["--statistics", "grasp", "--batches", "2", "-o", "s.safetensors"]
    call.ok(*calibrating(code, data="shuffled"), *options)
    from net_of_calibration import Net, shuffled

    found = calibrate(Net(), list(shuffled()), statistics=["grasp"], batches=2)
    same(Statistics.load("s.safetensors"), found)


def test_options_and_json(call, code, tmp_path):
    out = tmp_path / "out.safetensors"
    arguments = [*calibrating(code, data="Loader"), "-o", out]
    arguments += ["--batches", "2", "--statistics", "snip, grasp,input_norm", "--json"]
    arguments += ["--where", "0.*", "--where", "0.bias", "--temperature", "1"]
    arguments += ["--loss", f"{code}:square"]
    done = call.ok(*arguments)
    (line,) = done.stdout.splitlines()
    value = json.loads(line)
    assert value.pop("seconds") >= 0
    assert value == {
        "output": str(out),
        "batches": 2,
        "samples": 10,
        "weights": 28,
        "statistics": {
            "snip": ["0.bias", "0.weight"],
            "grasp": ["0.bias", "0.weight"],
            "input_norm": ["0.weight"],
        },
        "unreached": [],
    }
    from net_of_calibration import Net, listed, square

    same(
        Statistics.load(out),
        calibrate(
            Net(),
            listed,
            batches=2,
            statistics=["snip", "grasp", "input_norm"],
            where=["0.weight", "0.bias"],
            temperature=1,
            loss=square,
        ),
    )
    text = call(*[each for each in arguments if each != "--json"], "--force").stdout
    assert "without input_norm: 0.bias" in text.splitlines()[2]


def test_layers_that_no_sample_reaches_are_listed(call, code, tmp_path):
    out = tmp_path / "stats.safetensors"
    arguments = [*calibrating(code, "WithUnused"), "-o", out]
    line = call.ok(*arguments).stdout.splitlines()[-1]
    assert line == "no sample reaches, so that pruning leaves as they are: unused.weight"
    assert call(*arguments, "--force", "--json").json["unreached"] == ["unused.weight"]


def test_the_mode_is_the_models_own_or_the_asked_one(call, code):
    for flags, mode in (((), None), (("--train-mode",), True), (("--eval-mode",), False)):
        arguments = ["--model", f"{code}:Net", "--data", f"{code}:listed", *flags]
        assert call("calibrate", *arguments, "-o", "out.safetensors", "--force").status == 0
        from net_of_calibration import Net, listed

        same(Statistics.load("out.safetensors"), calibrate(Net(), listed, train_mode=mode))


def test_files_are_named_by_their_path_and_run_once(call, code, tmp_path, monkeypatch):
    (tmp_path / "project" / f"{code}.py").rename(tmp_path / "project" / "random.py")
    monkeypatch.chdir(tmp_path)
    place = Path("project") / "random.py"  # the name of a module that is there already
    counted = tmp_path / "count"
    place.write_text(NET + f"\nwith open({str(counted)!r}, 'a') as file: file.write('x')\n")
    call.ok(*calibrating(place), "-o", "s.safetensors")
    assert counted.read_text() == "x"
    assert sys.modules["random"].__file__ != str(place.resolve())
    assert Statistics.load("s.safetensors").batches == 3


def test_a_checkpoint_is_loaded_first(call, code):
    arguments = [*calibrating(code)]
    assert call(*arguments, "-o", "s.safetensors").status == 0  # and Net can be imported
    from net_of_calibration import Net

    net = Net()
    with torch.no_grad():
        for tensor in [*net.parameters(), net[1].running_mean]:
            tensor.add_(0.125)
    arguments += ["-o", "s.safetensors", "--force", "--checkpoint", "w.safetensors"]
    for prefix in ("", "module.", "_orig_mod.", "model."):
        save_file(net.state_dict(prefix=prefix), "w.safetensors")
        call.ok(*arguments)
        same(Statistics.load("s.safetensors"), expected(net))
    save_file({"0.weight": net[0].weight}, "w.safetensors")
    call.refused("w.safetensors: does not fit the model: it lacks '0.bias'", *arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "{}:none"}, "{}:none: {} has no 'none'"),
        ({"model": "nonesuch:Net"}, "there is no module 'nonesuch'"),
        ({"model": "{}.deeper:Net"}, "there is no module '{}.deeper'"),
        ({"model": "none.py:Net"}, "none.py: there is no such file"),
        ({"model": "broken.py:Net"}, "broken.py:Net failed at import: NameError: name 'oops'"),
        ({"model": "lacking:Net"}, "lacking:Net failed at import: ModuleNotFoundError"),
        ({"model": "{}:broken_factory"}, "{}:broken_factory failed: RuntimeError: no such layer"),
        ({"model": "{}:exits"}, "{}:exits failed: SystemExit: 3"),
        ({"model": "{}:number"}, "{}:number: gives int, not a torch.nn.Module"),
        ({"model": "{}:Loader"}, "{}:Loader: gives Loader, not a torch.nn.Module"),
        ({"data": "{}:number"}, "{}:number: gives int, not minibatches"),
        ({"data": "{}:broken_loader"}, "{}:broken_loader failed: OSError: disk gone"),
        ({"data": "{}:images"}, "{}:Net failed on the data: RuntimeError: mat1 and mat2"),
        ({"data": "{}:empty"}, "the data hold no minibatch"),
        ({"loss": "{}:broken_loss"}, "{}:broken_loss failed: ZeroDivisionError"),
        ({"loss": "{}:nan_loss"}, "the loss of minibatch 1 is nan"),
        ({"loss": "{}:number"}, "{}:number: is int, not a function"),
        ({"batches": "9"}, "ended after 3 minibatches; 9 were asked for"),
        ({"where": "5.*"}, "--where '5.*' matches none"),
        ({"temperature": "0"}, "expected --temperature to be a number above 0"),
        ({"checkpoint": "none.safetensors"}, "none.safetensors: cannot be read"),
    ],
)
def test_refusals_are_one_line_that_says_what_failed(call, code, options, words):
    Path("broken.py").write_text("oops\n")
    Path("lacking.py").write_text("import nonesuch_either\n")
    given = {"model": "{}:Net", "data": "{}:batches", "output": "s.safetensors", **options}
    arguments = [each for key, value in given.items() for each in (f"--{key}", value.format(code))]
    call.refused(words.format(code, code), "calibrate", *arguments)
    assert not list(Path.cwd().glob("*s.safetensors*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing option"),
        (["--model", "net"], "'net' is not MODULE:NAME"),
        (["--model", "net:"], "'net:' is not MODULE:NAME"),
        (["--model", ":Net"], "':Net' is not MODULE:NAME"),
        (["--model", "net:a b"], "'net:a b' is not MODULE:NAME"),
        (["--statistics", "snip,sinp"], "row_weight; got 'sinp'"),
        (["--statistics", ""], "expected some of gradient, taylor, snip"),
        (["--batches", "0"], "--batches"),
        (["--temperature", "hot"], "--temperature"),
        (["-o", ""], "the path is empty"),
    ],
)
def test_wrong_usage(call, arguments, words):
    usual = ["--model", "net:Net", "--data", "net:data", "-o", "out.safetensors"]
    line = call.refused(words, "calibrate", *(usual if arguments else []), *arguments)
    assert line.endswith("see tensorcomp calibrate --help")


def test_an_existing_output_is_kept_before_anything_is_run(call, code):
    Path("s.safetensors").write_text("old")
    arguments = ["calibrate", "--model", f"{code}:broken_factory", "--data", f"{code}:batches"]
    call.refused(
        "s.safetensors: exists already; --force replaces it", *arguments, "-o", "s.safetensors"
    )
    assert Path("s.safetensors").read_text() == "old"
    arguments[2] = f"{code}:Net"
    assert call(*arguments, "-o", "s.safetensors", "--force").status == 0
    assert Statistics.load("s.safetensors").batches == 3
    done = call(*arguments, "-o", "none/s.safetensors")
    assert "there is no folder none" in done.line


def test_debug_shows_where_ones_own_code_failed(call, code):
    done = call(
        "--debug",
        *("calibrate", "--model", f"{code}:broken_factory", "--data", f"{code}:batches"),
        *("-o", "s.safetensors"),
    )
    assert done.status == 2
    assert "in broken_factory" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"tensorcomp: {code}:broken_factory failed")


def test_help_has_an_example():
    done = CliRunner().invoke(tensorcomp_cli.main.app, ["calibrate", "--help"])
    assert done.exit_code == 0
    assert "tensorcomp calibrate --model " in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_torch_is_imported_only_when_it_runs(python):
    done = python(
        "import sys\nfrom tensorcomp_cli.main import main\nmain(['calibrate', '--help'])\n"
        "main(['calibrate', '--model', 'a:b', '--data', 'a:b', '-o', 'x', '--statistics', 'y'])\n"
        "print('imported:', *{'torch', 'tensorcomp.kernels'} & set(sys.modules))"
    )
    assert done.stdout.splitlines()[-1] == "imported:"


def test_without_torch_it_says_what_to_install(python, code):
    done = python(
        "import sys\nsys.modules['torch'] = None\nfrom tensorcomp_cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))",
        *("calibrate", "--model", f"{code}:Net", "--data", f"{code}:batches"),
        *("-o", "s.safetensors"),
    )
    assert done.status == 2
    assert "pip install 'tensorcomp[torch]'" in done.line


def test_a_bar_is_shown_where_stderr_is_a_terminal(on_terminal, code):
    text = on_terminal(*calibrating(code, data="Loader"), "-o", "s.safetensors")
    assert "calibrating" in text
    assert "6/6" in text


def test_what_a_users_code_prints_is_no_result(call, code):
    arguments = ["--model", f"{code}:chatty", "--data", f"{code}:chatty_batches"]
    arguments += ["--statistics", "snip", "--eval-mode", "-o", "s.safetensors", "--force"]
    done = call("calibrate", *arguments, "--json")
    assert done.status == 0
    assert done.json["batches"] == 1
    assert done.stderr.splitlines() == ["loading weights", "a minibatch"]
    done = call("calibrate", *arguments)
    assert "2 tensors of 36 weights, 1 minibatch of 1 sample, " in done.stdout
    assert "loading" not in done.stdout


def test_second_moments_by_a_module(call, code):
    arguments = [*calibrating(code, "WithUnused"), "-o", "s.safetensors"]
    done = call.ok(*arguments, "--statistics", "second_moment,row_weight", "--json")
    from net_of_calibration import WithUnused, listed

    assert done.json["statistics"]["row_weight"] == ["net.0.weight", "net.3.weight"]
    assert done.json["unreached"] == ["unused.weight"]
    found = Statistics.load("s.safetensors")
    same(found, calibrate(WithUnused(), listed, statistics=("second_moment", "row_weight")))
    options = ["--statistics", "second_moment,row_weight", "--memory", "1kB", "--force"]
    text = call.ok(*arguments, *options).stdout
    assert text.splitlines()[-1] == "no sample or gradient reaches: unused.weight"
    assert [path.name for path in Path.cwd().glob("s.*")] == ["s.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected --model with --data, or --hf with --text; got neither"),
        (["--model", "a:b", "--hf", "c"], "got --model and --hf"),
        (["--model", "a:b"], "--model needs data: give --data"),
        (["--hf", "c"], "--hf needs data: give --text"),
        (["--hf", "c", "--text", "d", "--data", "a:b"], "--data belongs to --model; got --hf"),
        (["--hf", "c", "--text", "d", "--loss", "a:b"], "--loss belongs to --model; got --hf"),
        (["--model", "a:b", "--data", "a:b", "--samples", "3"], "--samples belongs to --hf"),
    ],
)
def test_there_is_one_way_to_give_a_model(call, arguments, words):
    call.refused(words, "calibrate", "-o", "s.safetensors", *arguments)
