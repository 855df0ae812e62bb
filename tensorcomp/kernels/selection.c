/* Selecting the largest: by integer keys, with a tie-break, in a few passes and little memory; and drawing at random. */
#include "draws.h"
#include "huffman_codes.h"

enum { LARGEST_GROUP = 16 };

/* Whether masks (rows, groups) of 8 or 16 bits stand for the groups of neighbours in rows (rows, columns). */
static int fit_groups(const Arg *rows, i64 group, const Arg *masks) {
    return group >= 1 && group <= min64(LARGEST_GROUP, 8 * masks->itemsize) &&
           masks->shape[1] == (rows->shape[1] + group - 1) / group;
}

#define TEMPLATE "selection.inc"
#include "widths.h"
FOR_WIDTHS(selection_smallest_key)
FOR_WIDTHS(selection_count_keys)
FOR_WIDTHS(selection_mark_keys)
FOR_WIDTHS(selection_take)
FOR_WIDTHS(selection_scatter)
FOR_WIDTHS(selection_group_masks)

/* Add the squares of a block's part of a row to its sum, in their order. */
#define ADD_SQUARES(type)                                                      \
    for (i64 i = 0; i < rows; i++) {                                           \
        const type *row = (const type *)arg[0].data + i * columns;             \
        double *block = (double *)arg[4].data + (first + i) / height * blocks; \
        for (i64 b = 0; b < blocks && b * width < columns; b++) {              \
            double total = block[b];                                           \
            for (i64 c = b * width; c < min64((b + 1) * width, columns); c++)  \
                total += (double)row[c] * (double)row[c];                      \
            block[b] = total;                                                  \
        }                                                                      \
    }
/* Add the squares of rows (rows, columns) to the sums of their blocks (down, across), row by row. The rows are those
   from `first` on of a matrix cut into blocks of height × width; those at its edges may be smaller. */
ENTRY(selection_add_squares) {
    i64 rows = arg[0].shape[0], columns = arg[0].shape[1], first = arg[1].i, height = arg[2].i,
        width = arg[3].i;
    i64 blocks = arg[4].shape[1];
    if (height < 1 || width < 1 || first < 0 || first + rows > height * arg[4].shape[0]) return BAD_SIZES;
    if (arg[0].itemsize == 4) ADD_SQUARES(float)
    else ADD_SQUARES(double)
    return 0;
}

/* Spread 8 bits to the bytes of a word. */
INLINE u64 spread_bits(u64 bits) {
    u64 apart = (bits * 0x0101010101010101u) & 0x8040201008040201u;
    return ((apart + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u;
}

/* Set mask (rows, columns) from the bits of each group (rows, groups). Whether each has as many bits as it keeps, and
   none beyond its end. */
ENTRY(selection_spread_masks) {
    i64 keep = arg[1].i, group = arg[2].i, columns = arg[3].shape[1], sound = 1;
    u8 *mask = arg[3].data;
    if (arg[0].itemsize > 2 || !fit_groups(&arg[3], group, &arg[0])) return BAD_SIZES;
    for (i64 r = 0, at = 0; r < arg[3].shape[0]; r++, mask += columns)
        for (i64 start = 0; start < columns; start += group, at++) {
            i64 size = min64(group, columns - start);
            u64 bits = arg[0].itemsize == 1 ? ((u8 *)arg[0].data)[at] : ((u16 *)arg[0].data)[at];
            u64 bytes[2] = {spread_bits(bits & 255), spread_bits(bits >> 8)};
            u64 count = ((bytes[0] + bytes[1]) * 0x0101010101010101u) >> 56;
            if (size == 4) memcpy(mask + start, bytes, 4);
            else memcpy(mask + start, bytes, (size_t)size);
            sound &= (i64)count == min64(keep, size) && bits >> size == 0;
        }
    return sound;
}

/* ---- drawing --------------------------------------------------------------------------------------- */

/* Set limit[0] to the k-th smallest (from 1) of the numbers drawn for n indices: by their top 12 bits, then by the
   others of those that share them. */
ENTRY(selection_draw_limit) {
    u64 state = mixed_seed((u64)arg[0].i), start = (u64)arg[1].i, top = 0, *limit = arg[4].data;
    i64 n = arg[2].i, k = arg[3].i, found = 0;
    if (k < 1 || k > n) return BAD_SIZES;
    i64 counts[1 << 12] = {0};
    for (i64 i = 0; i < n; i++) counts[draw_number(state, start + (u64)i) >> 52]++;
    for (; k > counts[top]; top++) k -= counts[top];
    TAKE(i64, rest, counts[top]);
    for (i64 i = 0; i < n; i++) {
        u64 number = draw_number(state, start + (u64)i);
        if (number >> 52 == top) rest[found++] = (i64)(number << 12 >> 12);
    }
    sort_ascending(rest, found);
    *limit = (top << 52) | (u64)rest[k - 1];
    return 0;
}

ENTRY(selection_count_draws) {
    u64 state = mixed_seed((u64)arg[0].i), start = (u64)arg[1].i, limit = (u64)arg[3].i;
    i64 n = arg[2].i, count = 0;
    for (i64 i = 0; i < n; i++) count += draw_number(state, start + (u64)i) <= limit;
    return count;
}

ENTRY(selection_mark_draws) {
    u64 state = mixed_seed((u64)arg[0].i), start = (u64)arg[1].i, limit = (u64)arg[2].i;
    u8 *mask = arg[3].data;
    i64 n =
        arg[3].size; /* bytes that are written may be those of arguments, for all that the compiler knows */
    for (i64 i = 0; i < n; i++) mask[i] = draw_number(state, start + (u64)i) <= limit;
    return 0;
}
