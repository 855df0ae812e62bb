/* Uniform quantization: codes, the middle of what fell into each cell. */
#include "elements.h"

enum {
    LARGEST_CODE = 32767,
    SAMPLED_RUN = 64,       /* neighbours that are sampled together */
    PARTS_OF_CELL = 1 << 16 /* residuals are summed in this part of a cell */
};

/* Codes are of no use unless all fit: so there are no branches, and no early end. Adding and subtracting ROUNDING
   rounds to an integer. */
#define DEFINE_QUANTIZE(NAME, REAL, WORD, ROUNDING, FABS)                                    \
    static i64 NAME(const REAL *restrict values, i64 n, REAL inverse, i16 *restrict codes) { \
        const REAL limit = LARGEST_CODE;                                                     \
        WORD beyond = 0;                                                                     \
        for (i64 i = 0; i < n; i++) {                                                        \
            REAL scaled = values[i] * inverse, code = (scaled + ROUNDING) - ROUNDING;        \
            beyond |= FABS(scaled) > limit;                                                  \
            codes[i] = (i16)(i32)code;                                                       \
        }                                                                                    \
        return !beyond;                                                                      \
    }
DEFINE_QUANTIZE(quantize_singles, float, i32, 0x1.8p23f, __builtin_fabsf)
DEFINE_QUANTIZE(quantize_doubles, double, i64, 0x1.8p52, __builtin_fabs)

ENTRY(uniform_quantize) {
    (void)scratch;
    if (arg[0].itemsize == 8) return quantize_doubles(arg[0].data, arg[0].size, arg[1].f, arg[2].data);
    return quantize_singles(arg[0].data, arg[0].size, (float)arg[1].f, arg[2].data);
}

INLINE i64 sum_residuals(const Arg *arg, int wide) {
    const i16 *codes = arg[2].data;
    i64 n = arg[0].size, stride = arg[3].i, most = arg[4].size;
    i64 *sums = arg[4].data, *counts = arg[5].data;
    for (i64 start = 0; start < n; start += min64(stride, n - start))
        for (i64 i = start; i < min64(start + SAMPLED_RUN, n); i++) {
            i64 code = codes[i] < 0 ? -codes[i] : codes[i];
            if (code >= most) continue;
            double above = abs_real(read_real(arg[0].data, i, wide)) * arg[1].f - (double)code;
            sums[code] += (i64)round_even(above * PARTS_OF_CELL);
            counts[code]++;
        }
    return 0;
}
ENTRY(uniform_sum_residuals) {
    (void)scratch;
    return arg[3].i < SAMPLED_RUN ? BAD_SIZES : BY_WIDTH(arg[0], sum_residuals, arg);
}

/* Move codes to a neighbour where their value in the table is farther than `half` away. */
INLINE i64 confine(const Arg *arg, int wide) {
    const void *restrict values = arg[0].data;
    const double *restrict table = (const double *)arg[2].data - arg[1].i, half = arg[3].f;
    i16 *restrict codes = arg[4].data, least = INT16_MAX, most = INT16_MIN;
    i64 n = arg[0].size;
    for (i64 i = 0; i < n; i++) {
        least = codes[i] < least ? codes[i] : least;
        most = codes[i] > most ? codes[i] : most;
    }
    if (n && (least - arg[1].i < 1 || most - arg[1].i > arg[2].size - 2)) return BAD_SIZES;
    for (i64 i = 0; i < n; i++) {
        double value = read_real(values, i, wide);
        const double *at = table + codes[i];
        if (abs_real(value - *at) <= half) continue;
        if (abs_real(value - at[-1]) <= half) codes[i]--;
        else if (abs_real(value - at[1]) <= half) codes[i]++;
        else return 0;
    }
    return 1;
}
ENTRY_BY_WIDTH(uniform_confine, 0, confine)
