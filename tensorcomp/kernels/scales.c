/* Values times factors of their row and column, each product rounded; turned where they lie by columns. */
#include "elements.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 64, LINE = 64 }; /* a tile gives a line of cache of 64 rows */

/* `a`, `b`: factors of the rows and the columns of `values` (n, m); that of the output's row comes first.
   Lines of a tile are far apart, so those of the next one are asked for early. */
#define DEFINE_SCALE(NAME, REAL)                                                                           \
    INLINE REAL NAME##_one(REAL value, REAL first, REAL second, REAL limit) {                              \
        value = value * first * second;                                                                    \
        value = value < -limit ? -limit : value;                                                           \
        return value > limit ? limit : value;                                                              \
    }                                                                                                      \
    static void NAME(const REAL *restrict values, const REAL *restrict a, const REAL *restrict b, i64 n,   \
                     i64 m, REAL limit, REAL *restrict out) {                                              \
        for (i64 i = 0; i < n; i++)                                                                        \
            for (i64 j = 0; j < m; j++) out[i * m + j] = NAME##_one(values[i * m + j], a[i], b[j], limit); \
    }                                                                                                      \
    static void NAME##_turned(const REAL *restrict values, const REAL *restrict a, const REAL *restrict b, \
                              i64 n, i64 m, REAL limit, REAL *restrict out) {                              \
        const i64 together = LINE / (i64)sizeof(REAL);                                                     \
        REAL tile[TILE_ROWS][TILE_COLUMNS];                                                                \
        for (i64 left = 0; left < m; left += TILE_COLUMNS)                                                 \
            for (i64 top = 0; top < n; top += TILE_ROWS) {                                                 \
                i64 rows = min64(TILE_ROWS, n - top), columns = min64(TILE_COLUMNS, m - left);             \
                for (i64 i = 0; i < rows; i++) {                                                           \
                    const REAL *run = values + (top + i) * m + left, own = a[top + i];                     \
                    for (i64 j = 0; top + TILE_ROWS + i < n && j < columns; j += together)                 \
                        __builtin_prefetch(run + TILE_ROWS * m + j);                                       \
                    for (i64 j = 0; j < columns; j++)                                                      \
                        tile[i][j] = NAME##_one(run[j], b[left + j], own, limit);                          \
                }                                                                                          \
                for (i64 j = 0; j < columns; j++) {                                                        \
                    REAL *to = out + (left + j) * n + top;                                                 \
                    if (top + TILE_ROWS < n) __builtin_prefetch(to + TILE_ROWS, 1);                        \
                    for (i64 i = 0; i < rows; i++) to[i] = tile[i][j];                                     \
                }                                                                                          \
            }                                                                                              \
    }
DEFINE_SCALE(scale_singles, float)
DEFINE_SCALE(scale_doubles, double)

#define BY_AXIS(function, limit) \
    (turned ? function##_turned : function)(arg[0].data, a->data, b->data, n, m, limit, arg[5].data)
ENTRY(scales_restore) {
    i64 n = arg[0].shape[0], m = arg[0].shape[1], turned = arg[3].i != 0;
    const Arg *a = &arg[1 + turned], *b = &arg[2 - turned];
    if (a->size != n || b->size != m) return BAD_SIZES;
    if (arg[0].itemsize == 8) BY_AXIS(scale_doubles, arg[4].f);
    else BY_AXIS(scale_singles, (float)arg[4].f);
    return 0;
}
