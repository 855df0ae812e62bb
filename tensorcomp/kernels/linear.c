/* Products of vectors and matrices. Every sum has the order of its terms, so that it is equal on every machine. */
#include "elements.h"

enum { PRODUCT_COLUMNS = 1024 }; /* a block of the right factor stays in the second-level cache */

/* out (m, n) = left (m, r) × right (r, n): four terms at a time are added to two rows, nothing is fused. */
#define DEFINE_MULTIPLY(NAME, REAL)                                                                      \
    INLINE void NAME##_four(const REAL *a, const REAL *b, const REAL *restrict right, i64 stride, i64 n, \
                            REAL *restrict x, REAL *restrict y) {                                        \
        const REAL *r0 = right, *r1 = r0 + stride, *r2 = r1 + stride, *r3 = r2 + stride;                 \
        REAL a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];     \
        for (i64 j = 0; j < n; j++) {                                                                    \
            x[j] = (((x[j] + a0 * r0[j]) + a1 * r1[j]) + a2 * r2[j]) + a3 * r3[j];                       \
            y[j] = (((y[j] + b0 * r0[j]) + b1 * r1[j]) + b2 * r2[j]) + b3 * r3[j];                       \
        }                                                                                                \
    }                                                                                                    \
    INLINE void NAME##_one(REAL factor, const REAL *restrict row, i64 n, REAL *restrict out) {           \
        for (i64 j = 0; j < n; j++) out[j] = out[j] + factor * row[j];                                   \
    }                                                                                                    \
    static i64 NAME(const REAL *left, const REAL *right, i64 rows, i64 rank, i64 columns, REAL *out) {   \
        memset(out, 0, (size_t)(rows * columns) * sizeof *out);                                          \
        for (i64 start = 0; start < columns; start += PRODUCT_COLUMNS) {                                 \
            i64 n = min64(PRODUCT_COLUMNS, columns - start);                                             \
            for (i64 i = 0; i < rows; i++) {                                                             \
                int paired = (i ^ 1) < rows;                                                             \
                const REAL *a = left + i * rank;                                                         \
                REAL *x = out + i * columns + start;                                                     \
                for (i64 k = 0; paired && !(i & 1) && k + 4 <= rank; k += 4)                             \
                    NAME##_four(a + k, a + rank + k, right + k * columns + start, columns, n, x,         \
                                x + columns);                                                            \
                for (i64 k = paired ? rank / 4 * 4 : 0; k < rank; k++)                                   \
                    NAME##_one(a[k], right + k * columns + start, n, x);                                 \
            }                                                                                            \
        }                                                                                                \
        return 0;                                                                                        \
    }
DEFINE_MULTIPLY(multiply_singles, float)
DEFINE_MULTIPLY(multiply_doubles, double)

ENTRY(linear_multiply) {
    (void)scratch;
    i64 rows = arg[0].shape[0], rank = arg[0].shape[1], columns = arg[1].shape[1];
    if (arg[0].itemsize == 8)
        return multiply_doubles(arg[0].data, arg[1].data, rows, rank, columns, arg[2].data);
    return multiply_singles(arg[0].data, arg[1].data, rows, rank, columns, arg[2].data);
}

/* The place of the nearest of k vectors to each of n, of several the first. The k vectors are the columns of a
   matrix (width, k). Squared distances, `away`, are ordered as their bits are. */
#define DEFINE_NEAREST(NAME, REAL, INT)                                                                     \
    INLINE i64 NAME(const REAL *vectors, i64 n, const REAL *columns, i64 width, i64 k, REAL *restrict away, \
                    void *codes, i64 code_bytes) {                                                          \
        const INT *bits = (const INT *)away;                                                                \
        for (i64 i = 0; i < n; i++, vectors += width) {                                                     \
            for (i64 c = 0; c < k; c++) away[c] = 0;                                                        \
            for (i64 w = 0; w < width; w++) {                                                               \
                const REAL value = vectors[w], *restrict column = columns + w * k;                          \
                for (i64 c = 0; c < k; c++) away[c] += (value - column[c]) * (value - column[c]);           \
            }                                                                                               \
            INT least = bits[0], behind = 0;                                                                \
            for (INT c = 0; c < (INT)k; c++) least = bits[c] < least ? bits[c] : least;                     \
            for (INT c = 0; c < (INT)k; c++) {                                                              \
                INT place = bits[c] == least ? (INT)k - c : 0;                                              \
                behind = place > behind ? place : behind;                                                   \
            }                                                                                               \
            write_word(codes, i, (u64)(k - behind), code_bytes);                                            \
        }                                                                                                   \
        return 0;                                                                                           \
    }
DEFINE_NEAREST(nearest_singles, float, i32)
DEFINE_NEAREST(nearest_doubles, double, i64)

#define BY_CODES(function, ...) (arg[2].itemsize == 1 ? function(__VA_ARGS__, 1) : function(__VA_ARGS__, 2))
ENTRY(linear_nearest) {
    i64 n = arg[0].shape[0], width = arg[0].shape[1], k = arg[1].shape[1];
    if (k < 1 || k > 1 << 16 || arg[2].itemsize > 2) return BAD_SIZES;
    TAKE(double, away, k);
    if (arg[0].itemsize == 8)
        return BY_CODES(nearest_doubles, arg[0].data, n, arg[1].data, width, k, away, arg[2].data);
    return BY_CODES(nearest_singles, arg[0].data, n, arg[1].data, width, k, (float *)away, arg[2].data);
}

static double dot(const double *x, const double *y, i64 n) {
    double total = 0;
    for (i64 i = 0; i < n; i++) total += x[i] * y[i];
    return total;
}
static void divide(double *vector, i64 n, double length) {
    for (i64 i = 0; i < n; i++) vector[i] /= length;
}
/* Make a vector orthonormal to others, by Gram and Schmidt, twice; 0 if they leave less than `least` of it. */
ENTRY(linear_orthonormalize) {
    (void)scratch;
    double *vector = arg[0].data;
    i64 n = arg[0].size, others = arg[1].shape[0];
    double before = __builtin_sqrt(dot(vector, vector, n));
    if (before > 0) divide(vector, n, before);
    for (i64 step = 0; step < 2 * others; step++) {
        const double *other = (const double *)arg[1].data + step % others * n;
        double product = dot(vector, other, n);
        for (i64 i = 0; i < n; i++) vector[i] -= product * other[i];
    }
    double after = __builtin_sqrt(dot(vector, vector, n));
    if (!(after > arg[2].f)) return 0;
    divide(vector, n, after);
    return 1;
}
