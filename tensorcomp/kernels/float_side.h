/* The side information of a chunk of floats, as one stream of bits: numbers of contexts, alphabets, levels of rows and
   columns, sizes of streams, spans of bit planes. groupfloats.c and floats.c say in which order. */
#ifndef TC_FLOAT_SIDE_H
#define TC_FLOAT_SIDE_H
#include "bits.h"
#include "contexts.h"
#include "huffman_codes.h"

enum {
    LONGEST_LEVEL = 7,
    SPAN_BITS = 7,
    PADDING = 8
}; /* PADDING: bytes behind the last stream */

/* What is wrong with a chunk; codecs have a message for each. */
enum { DAMAGED_SIDE = -1, NO_PREFIX_CODE = -2, WRONG_SIZE = -3, WRONG_END = -4 };

static i64 put_levels(u8 *out, i64 at, const u8 *levels, i64 n) {
    i64 counts[LEVELS] = {0}, room[2 * LEVELS];
    u8 lengths[LEVELS];
    u16 all[LEVELS];
    u32 codes[LEVELS] = {0};
    for (i64 i = 0; i < n; i++) counts[levels[i]]++;
    code_lengths(counts, 1, LEVELS, LONGEST_LEVEL, room, lengths);
    for (int l = 0; l < LEVELS; l++) {
        all[l] = (u16)l;
        at = put_bits(out, at, lengths[l], 3);
    }
    fill_codes(lengths, LEVELS, LONGEST_LEVEL, all, codes);
    for (i64 i = 0; i < n; i++) at = put_bits(out, at, codes[levels[i]] >> 8, codes[levels[i]] & 0xFF);
    return at;
}
static i64 get_levels(Bytes in, i64 at, u8 *levels, i64 n) {
    u8 lengths[LEVELS];
    u16 all[LEVELS], table[1 << LONGEST_LEVEL];
    for (int l = 0; l < LEVELS; l++, at += 3) {
        all[l] = (u16)l;
        lengths[l] = (u8)get_bits(in, at, 3);
    }
    if (!valid_lengths(lengths, 1, LEVELS, LONGEST_LEVEL)) return -1;
    fill_table(lengths, LEVELS, LONGEST_LEVEL, all, table);
    for (i64 i = 0; i < n; i++) {
        u16 entry = table[get_bits(in, at, LONGEST_LEVEL)];
        levels[i] = (u8)(entry >> LENGTH_BITS);
        at += entry & 63;
    }
    return at;
}
static i64 put_sizes(u8 *out, i64 at, const i64 *sizes, int n) {
    i64 least = sizes[0], most = sizes[0];
    for (int j = 1; j < n; j++) {
        least = min64(least, sizes[j]);
        most = max64(most, sizes[j]);
    }
    i64 width = bit_length(least);
    at = put_bits(out, at, width, 5);
    at = put_bits(out, at, least, width);
    width = bit_length(most - least);
    at = put_bits(out, at, width, 5);
    for (int j = 0; j < n; j++) at = put_bits(out, at, sizes[j] - least, width);
    return at;
}
static i64 get_sizes(Bytes in, i64 at, i64 *sizes, int n) {
    i64 width = get_bits(in, at, 5), least = get_bits(in, at + 5, width);
    at += 5 + width;
    width = get_bits(in, at, 5);
    at += 5;
    for (int j = 0; j < n; j++, at += width) sizes[j] = least + get_bits(in, at, width);
    return at;
}
static i64 put_spans(u8 *out, i64 at, const u8 *spans, i64 rows) {
    if (rows == 1) {
        at = put_bits(out, at, spans[0], SPAN_BITS);
        return put_bits(out, at, spans[1], SPAN_BITS);
    }
    i64 begin = 0;
    for (i64 r = 1; r <= rows; r++)
        if (r == rows || memcmp(spans + 2 * r, spans + 2 * begin, 2)) {
            at = put_gamma(out, at, r - begin);
            at = put_bits(out, at, spans[2 * begin], SPAN_BITS);
            at = put_bits(out, at, spans[2 * begin + 1], SPAN_BITS);
            begin = r;
        }
    return at;
}
static i64 get_spans(Bytes in, i64 at, u8 *spans, i64 rows, i64 most) {
    for (i64 done = 0; done < rows;) {
        i64 count = 1;
        if (rows > 1) count = get_gamma(in, &at);
        i64 shift = get_bits(in, at, SPAN_BITS), width = get_bits(in, at + SPAN_BITS, SPAN_BITS);
        at += 2 * SPAN_BITS;
        if (shift + width > most || count > rows - done) return -1;
        for (; count; count--, done++) {
            spans[2 * done] = (u8)shift;
            spans[2 * done + 1] = (u8)width;
        }
    }
    return at;
}
#endif
