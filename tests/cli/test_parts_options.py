"""``compress --part`` and ``merge``."""

from pathlib import Path

from sharded_models import contents, make_shards


def test_parts_are_compressed_and_merged(call, tmp_path: Path, monkeypatch):
    make_shards(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    call.ok("compress", "m", "-o", "serial.tc")
    first = call.ok("compress", "m", "-o", "m.tc", "--part", "0/2").stdout.splitlines()
    assert first[0].startswith("m, part 0/2: ")
    assert first[0].endswith(" shards compressed to m.tc.partial")
    again = call.ok("compress", "m", "-o", "m.tc", "--part", "0/2", "--json").json
    assert again["reused"] == len(again["tensors"])
    missing = call("merge", "m.tc")
    assert (missing.status, missing.stdout) == (1, "")
    assert "; run part 1/2 again" in missing.line
    line = call.refused("is unfinished: ", "inspect", "m.tc.partial")
    assert "then tensorcomp merge" in line
    call.ok("compress", "m", "-o", "m.tc", "--part", "1/2")
    assert call.ok("merge", "m", "-o", "m.tc").stdout.startswith("m merged to m.tc\n6 tensors")
    assert contents(tmp_path / "m.tc") == contents(tmp_path / "serial.tc")
    assert call.ok("merge", "m.tc", "--json").json["tensors"]


def test_an_empty_part_says_so(call, tmp_path: Path):
    model = make_shards(tmp_path / "m")
    done = call.ok("compress", model, "--part", "8/9")
    assert done.stdout == f"{model}, part 8/9: 0 shards compressed to {model}.tc.partial\n"
    assert call.ok("compress", model, "--part", "8/9", "--json").json["tensors"] == []


def test_what_parts_cannot_do_is_refused(call, tmp_path: Path):
    model = make_shards(tmp_path / "m")
    part = ("compress", model, "--part")
    call.refused("parts count from 0, as the tasks of --array=0-7 do", *part, "8/8")
    call.refused("expected a part such as 0/8, got 'x'", *part, "x")
    words = "make a plan first, by tensorcomp plan FOLDER … -o plan.json, and give --plan"
    call.refused(words, *part, "0/2", "--bits-per-weight", 4)
    call.refused("pruning sees a model", *part, "0/2", "--prune", "magnitude", "--sparsity", 0.5)
    call.refused("expected --part, executor=… or --replace, got two", *part, "0/2", "--replace")
    call.refused("has no parts to merge", "merge", model)
    call.ok(*part, "0/2")
    call.refused("was begun with another 'budget'", *part, "1/2", "--min-snr", 30)
