"""What peers of quantization with statistics are made of."""

import numpy as np
import pytest


def _moments(columns, seed=0):
    """Second moments whose inputs go together."""
    generator = np.random.default_rng(seed)
    mixed = generator.standard_normal((4 * columns, columns)) @ generator.standard_normal(
        (columns, columns)
    )
    return (mixed.T @ mixed / len(mixed)).astype(np.float32)


def _matrix(rows, columns):
    return np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)


def _energy(errors, moments):
    return float(np.einsum("ri,ij,rj->", errors, moments, errors))


def test_a_format_counts_codes_scales_and_zeros(bench):
    form = bench("calibrated.gptq").Format(3, 64)
    # 2 rows of 100 codes of 3 bits; 2 groups a row, each with 16 bits and 3.
    assert form.nbytes(np.zeros((2, 100))) == -(-(2 * 100 * 3 + 4 * 19) // 8)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_nearest_levels_reach_the_ends_of_each_group(bench, bits):
    form = bench("calibrated.gptq").Format(bits, 64)
    matrix = _matrix(5, 100)
    found = form.rounded(matrix)
    for part in (slice(0, 64), slice(64, 100)):
        step = (matrix[:, part].max(1) - matrix[:, part].min(1)) / (2**bits - 1)
        # The zero is rounded: the ends may be half a step off.
        assert (np.abs(found - matrix)[:, part].max(1) <= 1.01 * step).all()
        assert all(len(np.unique(row)) <= 2**bits for row in found[:, part])


@pytest.mark.parametrize("act_order", [False, True])
def test_without_correlation_gptq_is_plain_rounding(bench, act_order):
    gptq = bench("calibrated.gptq")
    form, matrix = gptq.Format(3, 64), _matrix(7, 160)
    moments = np.diag(np.linspace(1, 2, 160)).astype(np.float32)
    found = gptq.gptq(matrix, moments, form, act_order=act_order)
    np.testing.assert_array_equal(found, form.rounded(matrix))


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("columns", [64, 160])
def test_gptq_costs_less_than_plain_rounding(bench, columns, act_order):
    gptq = bench("calibrated.gptq")
    form, matrix, moments = gptq.Format(3, 64), _matrix(32, columns), _moments(columns)
    found = gptq.gptq(matrix, moments, form, act_order=act_order)
    assert _energy(found - matrix, moments) < 0.6 * _energy(form.rounded(matrix) - matrix, moments)


def test_gptq_is_the_greedy_solution_of_each_column(bench):
    gptq = bench("calibrated.gptq")
    form, matrix, moments = gptq.Format(2, 64), _matrix(1, 8), _moments(8)
    found = gptq.gptq(matrix, moments, form)
    damped = moments + 0.01 * np.diagonal(moments).mean() * np.eye(8)
    grid, target = gptq.Grid.of(matrix, 2), matrix.astype(np.float64)
    for i in range(8):
        level = grid.rounded(target[:, i : i + 1].astype(np.float32))
        assert found[0, i] == level[0, 0]
        # The columns to come take what is best for the whole error so far.
        error = found[:, : i + 1] - matrix[:, : i + 1]
        rest = -error @ damped[: i + 1, i + 1 :] @ np.linalg.inv(damped[i + 1 :, i + 1 :])
        target[:, i + 1 :] = matrix[:, i + 1 :] + rest


def test_limits_of_rates_name_what_is_not_met(bench):
    rates = bench("calibrated.rates")
    usual = rates.titled(rates.USUAL)
    rows = [
        rates.RateRow("tiny_lm", "none", "balanced", 2.0, 1.99, (19.0,)),
        rates.RateRow("tiny_lm", usual, "balanced", 2.0, 1.99, (1.0, 2.0, 1.6)),
        rates.RateRow("tiny_lm", rates.titled(rates.FEW[0]), "balanced", 2.0, 2.01, (10.0,)),
    ]
    limits = rates.rate_limits(rows)
    assert [limit.met for limit in limits] == [False, False, False]
    assert limits[0].measured == 1.6
    assert limits[1].measured == pytest.approx(9 / 17.4)
    assert limits[2].measured == pytest.approx(0.01)
