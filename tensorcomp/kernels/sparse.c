/* Runs of equal words, and arrays with many zeros. */
#include "native.h"

/* Write lengths (r,) in bytes of seven bits, low ones first, all but the last of each with the top bit set. */
ENTRY(runlength_write_lengths) {
    const u64 *lengths = arg[0].data;
    u8 *out = arg[1].data;
    i64 at = 0;
    for (i64 k = 0; k < arg[0].size; k++) {
        u64 rest = lengths[k];
        if (at + 10 > arg[1].size && at + (bit_length(rest | 1) + 6) / 7 > arg[1].size) return BAD_SIZES;
        for (; rest >= 128; rest >>= 7) out[at++] = (u8)(rest | 128);
        out[at++] = (u8)rest;
    }
    return at;
}

/* The length at a byte; -1 where it is cut short, or has more than 63 bits. */
INLINE i64 read_length(const u8 *data, i64 size, i64 *at) {
    u64 length = 0;
    for (int shift = 0; *at < size && shift < 63; shift += 7) {
        u64 byte = data[(*at)++];
        length |= (byte & 127) << shift;
        if (byte < 128) return (i64)length;
    }
    return -1;
}

#define TEMPLATE "sparse.inc"
#include "widths.h"
FOR_WIDTHS(runlength_expand)
FOR_WIDTHS(sparse_is_grouped)
FOR_WIDTHS(zeros_strip_signs)
FOR_WIDTHS(zeros_put_signs)
