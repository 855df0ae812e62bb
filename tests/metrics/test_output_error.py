"""Energies of outputs, of weights and inputs of any scale."""

import math

import numpy as np
import pytest

from tensorcomp.metrics.output_error import output_energy

GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(2, 40, 12))
MOMENTS = INPUTS.transpose(0, 2, 1) @ INPUTS / 40
ROWS = GENERATOR.normal(size=(6, 12))


@pytest.mark.parametrize("of_inputs", [-90, -40, 0, 40, 90])
@pytest.mark.parametrize("of_rows", [-110, -40, 0, 40, 120])
def test_no_scale_of_float32_changes_the_energy(of_rows, of_inputs):
    rows = np.ldexp(ROWS, of_rows).astype(np.float32)
    moments = np.ldexp(MOMENTS, of_inputs).astype(np.float32)
    found = output_energy(rows, moments)
    expected = output_energy(ROWS.astype(np.float32), MOMENTS.astype(np.float32))
    assert math.ldexp(found, -2 * of_rows - of_inputs) == pytest.approx(expected, rel=1e-6)


def test_small_differences_of_doubles_count():
    rows = ROWS * 1e-60
    assert output_energy(rows, MOMENTS) == pytest.approx(1e-120 * output_energy(ROWS, MOMENTS))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_is_beyond_all_bounds_is_infinite(value, recwarn):
    rows = ROWS.copy()
    rows[1, 2] = value
    assert output_energy(rows, MOMENTS) == math.inf
    assert not recwarn.list
