/* Uniform quantization: codes, the middle of what fell into each cell. */
#include "elements.h"

enum {
    LARGEST_CODE = 32767,
    SAMPLED_RUN = 64,       /* neighbours that are sampled together */
    PARTS_OF_CELL = 1 << 16 /* residuals are summed in this part of a cell */
};

/* Without branches and early ends, for vectors. Adding and subtracting ROUNDING rounds to an integer. */
#define DEFINE_QUANTIZE(NAME, REAL, WORD, ROUNDING)                                          \
    static i64 NAME(const REAL *restrict values, i64 n, REAL inverse, i16 *restrict codes) { \
        const REAL limit = LARGEST_CODE;                                                     \
        WORD beyond = 0;                                                                     \
        for (i64 i = 0; i < n; i++) {                                                        \
            REAL scaled = values[i] * inverse, code = (scaled + ROUNDING) - ROUNDING;        \
            beyond |= (scaled > limit) | (scaled < -limit);                                  \
            code = code < -limit ? -limit : code;                                            \
            code = code > limit ? limit : code;                                              \
            codes[i] = (i16)(i32)code;                                                       \
        }                                                                                    \
        return !beyond;                                                                      \
    }
DEFINE_QUANTIZE(quantize_singles, float, i32, 0x1.8p23f)
DEFINE_QUANTIZE(quantize_doubles, double, i64, 0x1.8p52)

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
    const double *table = arg[2].data, half = arg[3].f;
    i16 *codes = arg[4].data;
    for (i64 i = 0; i < arg[0].size; i++) {
        double value = read_real(arg[0].data, i, wide);
        i64 place = codes[i] - arg[1].i;
        if (place < 1 || place >= arg[2].size - 1) return BAD_SIZES;
        if (abs_real(value - table[place]) <= half) continue;
        if (abs_real(value - table[place - 1]) <= half) codes[i]--;
        else if (abs_real(value - table[place + 1]) <= half) codes[i]++;
        else return 0;
    }
    return 1;
}
ENTRY_BY_WIDTH(uniform_confine, 0, confine)
