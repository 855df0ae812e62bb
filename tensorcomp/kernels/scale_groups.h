/* Rows, or columns, of like scale put together, so that each group has a code of its own. */
#ifndef TC_SCALE_GROUPS_H
#define TC_SCALE_GROUPS_H
#include "contexts.h"
#include "huffman_runs.h"

enum { MOST_GROUPS = 8, SIDE = 8 }; /* SIDE: of a tile that is turned */

/* Set group_of (n,): which of so many equal steps of the mean each of `sums`, of `count` numbers, falls in. The
   outermost steps take what lies beyond the 2nd and the 98th percentile. Sums become means. */
static void find_groups(i64 *sums, i64 n, i64 count, i64 groups, u8 *group_of) {
    i64 low, high;
    if (groups == 1) {
        memset(group_of, 0, (size_t)n);
        return;
    }
    to_means(sums, n, count, 0);
    level_edges(sums, n, &low, &high);
    cut_levels(sums, n, low, high, groups, (high - low) / groups + 1, group_of);
}

/* Set the place of each of n lines where groups follow each other, and how many lines each group has. */
static void find_places(const u8 *group_of, i64 n, i64 groups, i64 *places, i64 *sizes) {
    i64 following[MOST_GROUPS] = {0};
    for (i64 g = 0; g < groups; g++) sizes[g] = 0;
    for (i64 r = 0; r < n; r++) sizes[group_of[r]]++;
    for (i64 g = 1; g < groups; g++) following[g] = following[g - 1] + sizes[g - 1];
    for (i64 r = 0; r < n; r++) places[r] = following[group_of[r]]++;
}

/* Set sums (columns,) of bytes (rows, columns); part (columns,) is room. */
static void sum_columns(const u8 *symbols, i64 rows, i64 columns, u16 *restrict part, i64 *restrict sums) {
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (i64 first = 0; first < rows; first += SYMBOLS) {
        memset(part, 0, (size_t)columns * sizeof *part);
        for (i64 r = first; r < min64(first + SYMBOLS, rows); r++) {
            const u8 *row = symbols + r * columns;
            for (i64 c = 0; c < columns; c++) part[c] = (u16)(part[c] + row[c]);
        }
        for (i64 c = 0; c < columns; c++) sums[c] += part[c];
    }
}

/* Swap what is right of the diagonal in `upper` with what is left of it in `lower`. */
INLINE void swap_bits(u64 *upper, u64 *lower, int shift, u64 mask) {
    u64 moved = ((*upper >> shift) ^ *lower) & mask;
    *upper ^= moved << shift;
    *lower ^= moved;
}

/* Turn a tile of 8 × 8 bytes: swap the off-diagonal 4 × 4 blocks, then 2 × 2 blocks, then bytes (Warren, "Hacker's
   Delight", 7-3). */
INLINE void turn_tile(u64 tile[SIDE]) {
    for (int i = 0; i < SIDE; i++)
        if (!(i & 4)) swap_bits(&tile[i], &tile[i + 4], 32, 0x00000000FFFFFFFFu);
    for (int i = 0; i < SIDE; i++)
        if (!(i & 2)) swap_bits(&tile[i], &tile[i + 2], 16, 0x0000FFFF0000FFFFu);
    for (int i = 0; i < SIDE; i++)
        if (!(i & 1)) swap_bits(&tile[i], &tile[i + 1], 8, 0x00FF00FF00FF00FFu);
}

/* Move bytes between `matrix` (rows, columns) and `turned`, whose row places[c] is column c. */
INLINE void turn(u8 *matrix, u8 *turned, i64 rows, i64 columns, const i64 *places, int back) {
    enum { TOGETHER = 64 }; /* columns: a line of cache of each row */
    i64 whole_rows = rows - rows % SIDE, whole_columns = columns - columns % SIDE;
    for (i64 first = 0; first < whole_columns; first += TOGETHER)
        for (i64 r = 0; r < whole_rows; r += SIDE)
            for (i64 c = first; c < min64(first + TOGETHER, whole_columns); c += SIDE) {
                u8 *line = matrix + r * columns + c;
                u64 tile[SIDE];
                for (int i = 0; i < SIDE; i++)
                    tile[i] = load64(back ? turned + places[c + i] * rows + r : line + i * columns);
                turn_tile(tile);
                for (int i = 0; i < SIDE; i++)
                    store64(back ? line + i * columns : turned + places[c + i] * rows + r, tile[i]);
            }
    for (i64 r = 0; r < rows; r++)
        for (i64 c = r < whole_rows ? whole_columns : 0; c < columns; c++) {
            u8 *a = matrix + r * columns + c, *b = turned + places[c] * rows + r;
            if (back) *a = *b;
            else *b = *a;
        }
}
static void gather_columns(u8 *matrix, i64 rows, i64 columns, const i64 *places, u8 *gathered) {
    turn(matrix, gathered, rows, columns, places, 0);
}
static void scatter_columns(u8 *gathered, i64 rows, i64 columns, const i64 *places, u8 *matrix) {
    turn(matrix, gathered, rows, columns, places, 1);
}
#endif
