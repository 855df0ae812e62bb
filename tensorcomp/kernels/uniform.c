/* Uniform quantization: codes, the middle of what fell into each cell. */
#include "elements.h"

enum {
    LARGEST_CODE = 32767,
    SAMPLED_RUN = 64,        /* neighbours that are sampled together */
    PARTS_OF_CELL = 1 << 16, /* residuals are summed in this part of a cell */
    MOST_CELLS = 8           /* that have one */
};

/* Codes are of no use unless all fit: so there are no branches, and no early end. Adding and subtracting ROUNDING
   rounds to an integer. A NaN does not fit. */
#define DEFINE_QUANTIZE(NAME, REAL, WORD, ROUNDING, FABS)                                    \
    static i64 NAME(const REAL *restrict values, i64 n, REAL inverse, i16 *restrict codes) { \
        const REAL limit = LARGEST_CODE;                                                     \
        WORD beyond = 0;                                                                     \
        for (i64 i = 0; i < n; i++) {                                                        \
            REAL scaled = values[i] * inverse, code = (scaled + ROUNDING) - ROUNDING;        \
            beyond |= !(FABS(scaled) <= limit);                                              \
            codes[i] = (i16)(i32)code;                                                       \
        }                                                                                    \
        return !beyond;                                                                      \
    }
DEFINE_QUANTIZE(quantize_singles, float, i32, 0x1.8p23f, __builtin_fabsf)
DEFINE_QUANTIZE(quantize_doubles, double, i64, 0x1.8p52, __builtin_fabs)

/* Add up how far magnitudes of a run lie above the middle of their cells. A cell's sum has its number of elements in
   the bits from COUNTED on: one addition for both. */
enum { COUNTED = 40 }; /* room for 2^24 elements of a cell: callers sample fewer */
INLINE void add_run(const void *values, const i16 *codes, i64 start, i64 n, double inverse, int wide,
                    i64 *cells) {
    i32 above[SAMPLED_RUN], magnitudes[SAMPLED_RUN];
    for (i64 l = 0; l < n; l++) {
        i32 code = codes[start + l], magnitude = code < 0 ? -code : code;
        double scaled = abs_real(read_real(values, start + l, wide)) * inverse;
        above[l] = (i32)round_even((scaled - (double)magnitude) * PARTS_OF_CELL);
        magnitudes[l] = magnitude > MOST_CELLS ? MOST_CELLS + 1 : magnitude;
    }
    for (i64 l = 0; l < n; l++) cells[magnitudes[l]] += ((i64)1 << COUNTED) + above[l];
}

/* Set how far the mean of each cell lies below its middle, in 1/256 step; return how many, without zeros at the end. */
static i64 cell_centroids(const i64 *cells, i8 *centroids) {
    i64 found = 0;
    for (i64 k = 0; k < MOST_CELLS; k++) {
        i64 number = (cells[k + 1] + ((i64)1 << (COUNTED - 1))) >> COUNTED;
        centroids[k] = centroid_of(cells[k + 1] - (number << COUNTED), number, PARTS_OF_CELL);
        if (centroids[k]) found = k + 1;
    }
    return found;
}

INLINE i64 encode_uniform(const Arg *arg, int wide) {
    const void *values = arg[0].data;
    i64 n = arg[0].size, stride = arg[2].i, cells[MOST_CELLS + 2] = {0};
    i16 *codes = arg[3].data;
    double inverse = arg[1].f;
    if (stride && stride < SAMPLED_RUN) return BAD_SIZES;
    if (!(wide ? quantize_doubles(values, n, inverse, codes)
               : quantize_singles(values, n, (float)inverse, codes)))
        return -1;
    for (i64 start = 0; stride && start < n; start += min64(stride, n - start))
        add_run(values, codes, start, min64(SAMPLED_RUN, n - start), inverse, wide, cells);
    return cell_centroids(cells, arg[4].data);
}
ENTRY_BY_WIDTH(uniform_encode, 0, encode_uniform)

/* The values of points in a row, but for what lies beyond a limit. */
INLINE i64 fill_values(const Arg *arg, int wide) {
    double parts = (double)arg[1].i, step = arg[2].f, limit = arg[4].f;
    const i8 *centroids = arg[3].data;
    for (i64 k = 0; k < arg[5].size; k++) {
        i64 point = arg[0].i + k, magnitude = point < 0 ? -point : point;
        double value = (double)magnitude / parts;
        if (0 < magnitude && magnitude <= arg[3].size)
            value -= (double)centroids[magnitude - 1] / CENTROID_PARTS;
        value *= step;
        write_real(arg[5].data, k, clip_real(point < 0 ? -value : value, limit), wide);
    }
    return 0;
}
ENTRY_BY_WIDTH(uniform_values, 5, fill_values)

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
