import numpy as np
import pytest

from benchmarks.series.resume_tables import sheets
from benchmarks.series.states import EXCP, SETTINGS, State, coded, file_ratio


def normal(seed, size=1.0):
    return (size * np.random.default_rng(seed).normal(size=(64, 128))).astype(np.float32)


BASE = {"layer.weight": normal(0)}
SECOND = np.square(normal(1, 1e-4))
STATE = State(
    {"layer.weight": BASE["layer.weight"] + normal(2, 0.01)},
    {"layer.weight": normal(3) * np.sqrt(SECOND)},
    {"layer.weight": SECOND},
    300,
)


@pytest.mark.parametrize("setting", [*SETTINGS, *EXCP])
def test_a_setting_gives_a_state_near_the_one_that_was_saved(setting):
    found = coded(STATE, BASE, setting)
    assert found.nbytes < 0.75 * STATE.nbytes
    assert found.state.step == 300
    error = found.state.weights["layer.weight"] - STATE.weights["layer.weight"]
    assert np.linalg.norm(error) < 1.01 * np.linalg.norm(normal(2, 0.01))
    zeros = (found.state.second["layer.weight"] == 0).mean()
    assert zeros > 0.5 if setting in EXCP else zeros == 0


def test_a_file_is_little_larger_than_its_payloads():
    ratio = STATE.nbytes / coded(STATE, BASE, "policy resume").nbytes
    assert 0.75 * ratio < file_ratio(STATE, BASE, "policy resume") < ratio


def test_tables_show_differences_to_the_exact_run_of_the_same_seed():
    def run(setting, seed, loss):
        return {
            "part": "late", "setting": setting, "seed": seed, "ratio": 60.0,
            "at restore": 1.0, "last 20": loss, "held out": loss + seed,
        }  # fmt: skip

    runs = [run("exact", seed, 1.0) for seed in range(3)]
    runs += [run("policy archive", seed, 1.000052 + seed / 1e4) for seed in range(3)]
    (sheet,) = sheets(runs)
    assert sheet.rows[0][:3] == ("policy archive", "60.0", "+0.0000 ± 0.0000")
    assert sheet.rows[0][4:] == ("+0.0002 ± 0.0001", "3 ± 1", "3")
