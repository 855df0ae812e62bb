/* Figures of two arrays, and floats of 16 bits. */
#include "elements.h"

/* Sums over lanes, which vectors add up side by side: the order is the same on every machine. */
enum { LANES = 32, LANE_BLOCK = 4 * LANES };
typedef struct {
    double error[LANES], squared_error[LANES], x_squared[LANES], y_squared[LANES], product[LANES];
    double most_error[LANES], most_x[LANES];
} Sums;

INLINE double greater(double a, double b) { return a > b ? a : b; }

/* Add four elements, LANES apart, to a lane. */
INLINE void add_four(Sums *restrict sums, i64 lane, const void *restrict x, const void *restrict y, i64 i,
                     int wide) {
    double x0 = read_real(x, i, wide), y0 = read_real(y, i, wide);
    double x1 = read_real(x, i + LANES, wide), y1 = read_real(y, i + LANES, wide);
    double x2 = read_real(x, i + 2 * LANES, wide), y2 = read_real(y, i + 2 * LANES, wide);
    double x3 = read_real(x, i + 3 * LANES, wide), y3 = read_real(y, i + 3 * LANES, wide);
    double d0 = abs_real(x0 - y0), d1 = abs_real(x1 - y1), d2 = abs_real(x2 - y2), d3 = abs_real(x3 - y3);
    sums->error[lane] += (d0 + d1) + (d2 + d3);
    sums->squared_error[lane] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    sums->x_squared[lane] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3);
    sums->y_squared[lane] += (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3);
    sums->product[lane] += (x0 * y0 + x1 * y1) + (x2 * y2 + x3 * y3);
    sums->most_error[lane] = greater(greater(greater(d0, d1), greater(d2, d3)), sums->most_error[lane]);
    double first = greater(abs_real(x0), abs_real(x1)), second = greater(abs_real(x2), abs_real(x3));
    sums->most_x[lane] = greater(greater(first, second), sums->most_x[lane]);
}
INLINE void add_one(Sums *sums, double x, double y) {
    double error = abs_real(x - y);
    sums->error[0] += error;
    sums->squared_error[0] += error * error;
    sums->x_squared[0] += x * x;
    sums->y_squared[0] += y * y;
    sums->product[0] += x * y;
    sums->most_error[0] = greater(error, sums->most_error[0]);
    sums->most_x[0] = greater(abs_real(x), sums->most_x[0]);
}
INLINE i64 sum_errors(const Arg *arg, int wide) {
    const void *x = arg[0].data, *y = arg[1].data;
    double *out = arg[2].data;
    i64 n = arg[0].size, whole = n / LANE_BLOCK * LANE_BLOCK;
    Sums sums = {0};
    for (i64 start = 0; start < whole; start += LANE_BLOCK)
        for (i64 lane = 0; lane < LANES; lane++) add_four(&sums, lane, x, y, start + lane, wide);
    for (i64 i = whole; i < n; i++) add_one(&sums, read_real(x, i, wide), read_real(y, i, wide));
    const double *lanes[] = {sums.error,   sums.squared_error, sums.x_squared, sums.y_squared,
                             sums.product, sums.most_error,    sums.most_x};
    for (int k = 0; k < LENGTH(lanes); k++) {
        out[k] = lanes[k][0];
        for (i64 lane = 1; lane < LANES; lane++)
            out[k] = k < 5 ? out[k] + lanes[k][lane] : greater(lanes[k][lane], out[k]);
    }
    return 0;
}
/* Σ|x-y|, Σ(x-y)², Σx², Σy², Σxy, max |x-y|, max |x|, in doubles. */
ENTRY_BY_WIDTH(errors_sum, 0, sum_errors)

/* Add Σ(x-y)² and Σx² of a run of elements to the sums of the rows that they are in. */
INLINE i64 add_row_errors(const Arg *arg, int wide) {
    const void *x = arg[0].data, *y = arg[1].data;
    i64 n = arg[0].size, first = arg[2].i, columns = arg[3].i;
    double *sums = arg[4].data;
    if (n == 0) return 0;
    if (first < 0 || columns < 1 || first > INT64_MAX - n || (first + n - 1) / columns >= arg[4].shape[0])
        return BAD_SIZES;
    for (i64 i = 0; i < n;) {
        i64 row = (first + i) / columns, left = columns - (first + i) % columns;
        i64 stop = left < n - i ? i + left : n, whole = i + (stop - i) / LANES * LANES;
        double error[LANES] = {0}, square[LANES] = {0};
        for (; i < whole; i += LANES)
            for (i64 lane = 0; lane < LANES; lane++) {
                double value = read_real(x, i + lane, wide), miss = value - read_real(y, i + lane, wide);
                error[lane] += miss * miss;
                square[lane] += value * value;
            }
        for (i64 lane = 0; i < stop; i++, lane++) {
            double value = read_real(x, i, wide), miss = value - read_real(y, i, wide);
            error[lane] += miss * miss;
            square[lane] += value * value;
        }
        for (i64 lane = 0; lane < LANES; lane++) {
            sums[2 * row] += error[lane];
            sums[2 * row + 1] += square[lane];
        }
    }
    return 0;
}
ENTRY_BY_WIDTH(errors_by_row, 0, add_row_errors)

/* Singles to the nearest halves, ties to even; NaN becomes a quiet NaN. */
ENTRY(halves_round) {
    (void)scratch;
    const i32 *restrict words = arg[0].data;
    u16 *restrict out = arg[1].data;
    for (i64 i = 0, n = arg[0].size; i < n; i++) {
        i32 size = words[i] & 0x7FFFFFFF, sum_bits;
        i32 normal = (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13; /* another bias, and rounded */
        float sum;
        memcpy(&sum, &size, 4);
        sum += 0.5f; /* whose last bit is worth the least half */
        memcpy(&sum_bits, &sum, 4);
        i32 is_small = -(size < 0x38800000), is_nan = -(size > 0x7F800000);
        i32 half = ((sum_bits - 0x3F000000) & is_small) | (normal & ~is_small);
        half = half > 0x7C00 ? 0x7C00 : half;
        half = (half & ~is_nan) | (0x7E00 & is_nan);
        out[i] = (u16)(half | (words[i] >> 16 & 0x8000));
    }
    return 0;
}
