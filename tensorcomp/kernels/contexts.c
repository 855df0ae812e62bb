/* Contexts from row and column scale, for codecs that are put together in Python. */
#include "contexts.h"

/* (matrix, has signs, width or 0, contexts, row levels, column levels, context of each sum) -> width of a level */
ENTRY(contexts_find) {
    Sums sums;
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

/* (row levels, column levels, context of each sum, shift, symbols or None, out) */
ENTRY(contexts_fill) {
    Patterns patterns;
    i64 rows = arg[5].shape[0], columns = arg[5].shape[1], itemsize = arg[4].itemsize;
    const u8 *symbols = arg[4].data;
    u16 *out = arg[5].data;
    if (itemsize > 2 || !columns) return BAD_SIZES;
    if (new_patterns(&patterns, arg[0].data, rows, arg[1].data, columns, arg[2].data, arg[3].i & 15, scratch))
        return NO_MEMORY;
    for (i64 r = 0; r < rows; r++, out += columns) {
        const u16 *pattern = patterns.rows_of[patterns.row_levels[r]];
        if (symbols) put_pattern(pattern, symbols + r * columns * itemsize, itemsize, 0, out, columns);
        else memcpy(out, pattern, (size_t)columns * sizeof *out);
    }
    return 0;
}

/* (words, counts) */
ENTRY(contexts_count) {
    i64 size = arg[1].size, itemsize = arg[0].itemsize, *counts = arg[1].data;
    if (itemsize > 2 || (itemsize == 1 && size < 256)) return BAD_SIZES;
    TAKE(u32, counters, 2 * size);
    memset(counters, 0, (size_t)size * 2 * sizeof *counters);
    count_words(arg[0].data, itemsize, arg[0].size, counters, size);
    for (i64 i = 0; i < size; i++) counts[i] = (i64)counters[i] + counters[size + i];
    return 0;
}
