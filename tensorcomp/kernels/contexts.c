/* Contexts from row and column scale, for codecs that are put together in Python. */
#include "contexts.h"

/* (matrix, has signs, width or 0, contexts, row levels, column levels, context of each sum) -> width of a level */
ENTRY(contexts_find) {
    LevelSums sums;
    i64 rows = arg[0].shape[0], columns = arg[0].shape[1], contexts = arg[3].i;
    if (!arg[0].size || arg[0].itemsize > 2) return BAD_SIZES;
    if (new_sums(&sums, rows, columns, scratch)) return NO_MEMORY;
    for (i64 r = 0, row = columns * arg[0].itemsize; r < rows; r++)
        sum_words(&sums, (const u8 *)arg[0].data + r * row, arg[0].itemsize, arg[1].i != 0, r, 0, columns);
    u8 *row_levels = arg[4].data, *column_levels = arg[5].data;
    i64 width = find_levels(&sums, arg[1].i != 0, arg[2].i, row_levels, column_levels);
    if (arg[6].data) fill_steps(find_steps(row_levels, rows, column_levels, columns), contexts, arg[6].data);
    return width;
}
