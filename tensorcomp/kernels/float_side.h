/* The side information of a chunk of floats, as one stream of bits: numbers of contexts, alphabets, levels of rows and
   columns, sizes of streams, spans of bit planes. groupfloats.c and floats.c say in which order. */
#ifndef TC_FLOAT_SIDE_H
#define TC_FLOAT_SIDE_H
#include "bits.h"
#include "contexts.h"
#include "frequency_tables.h"
#include "huffman_codes.h"

enum {
    LONGEST_LEVEL = 7,
    SPAN_BITS = 7,
    PADDING = 8 /* bytes behind the last stream, planes or zeros */
};

/* What is wrong with a chunk; codecs have a message for each. */
enum { DAMAGED_SIDE = -1, NO_PREFIX_CODE = -2, WRONG_SIZE = -3, WRONG_END = -4 };

/* More bytes than the side information of such a chunk can have. */
INLINE i64 most_side_bytes(i64 levels, i64 lengths, i64 symbols, i64 spans) {
    return 144 + levels + lengths * LONGEST_FREQUENCY / 8 + 8 * (symbols + 2 * spans);
}

/* The number of contexts, the longest code, and whether rows have spans of their own. */
static i64 put_head(u8 *out, i64 contexts, i64 longest, int apart) {
    i64 at = put_bits(out, 0, bit_length((u64)contexts) - 1, 3);
    at = put_bits(out, at, longest, 4);
    return put_bits(out, at, apart, 1);
}
static i64 get_head(Bytes in, i64 *contexts, i64 *longest, int *apart) {
    *contexts = (i64)1 << get_bits(in, 0, 3);
    *longest = get_bits(in, 3, 4);
    *apart = (int)get_bits(in, 7, 1);
    return 8;
}

/* Ascending symbols, to each of which `least` is added: the first, how many, the gaps. */
static i64 put_alphabet(u8 *out, i64 at, const u16 *symbols, i64 n, i64 least) {
    at = put_bits(out, at, least + symbols[0], 16);
    at = put_gamma(out, at, n);
    for (i64 a = 1; a < n; a++) at = put_gamma(out, at, symbols[a] - symbols[a - 1]);
    return at;
}
/* Return the position, or -1 if they are more than `most`, or too large. */
static i64 get_alphabet(Bytes in, i64 at, i64 most, u16 *symbols, i64 *n) {
    i64 symbol = get_bits(in, at, 16);
    at += 16;
    *n = get_gamma(in, &at);
    if (*n > most) return -1;
    for (i64 a = 0; a < *n; a++) {
        if (a > 0) symbol += get_gamma(in, &at);
        if (symbol >= 1 << 16) return -1;
        symbols[a] = (u16)symbol;
    }
    return at;
}

/* Levels below 16 by a Huffman code of their own: 16 code lengths of 3 bits, then the codes. */
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

/* Numbers of bits, below 2^31: the least, then how much more each one is. */
static i64 put_sizes(u8 *out, i64 at, const i64 *sizes, int n) {
    i64 least = sizes[0], most = sizes[0];
    for (int j = 1; j < n; j++) {
        least = min64(least, sizes[j]);
        most = max64(most, sizes[j]);
    }
    i64 width = bit_length((u64)least);
    at = put_bits(out, at, width, 5);
    at = put_bits(out, at, least, width);
    width = bit_length((u64)(most - least));
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

/* The (shift, width) of all planes, or of runs of rows that share it. */
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
/* Return the position, or -1 if a span has more than `most` bits. */
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

/* Code lengths (contexts, alphabet) from the next whole byte on. table: as many numbers of room. */
static i64 put_lengths(u8 *out, i64 at, const u8 *lengths, i64 contexts, i64 alphabet, i64 *table) {
    i64 begin = (at + 7) / 8;
    for (i64 i = 0; i < contexts * alphabet; i++) table[i] = lengths[i];
    return 8 * begin + pack_table(table, contexts, alphabet, out + begin);
}
/* Return the position, or -1 if one is longer than `longest`. */
static i64 get_lengths(Bytes in, i64 at, i64 longest, u8 *lengths, i64 contexts, i64 alphabet, i64 *table) {
    i64 begin = (at + 7) / 8;
    if (begin + 8 >= in.size) return -1;
    Bytes rest = {in.data + begin, in.size - begin};
    i64 bits = unpack_table(rest, longest, table, contexts, alphabet);
    if (bits < 0) return -1;
    for (i64 i = 0; i < contexts * alphabet; i++) lengths[i] = (u8)table[i];
    return 8 * begin + bits;
}
#endif
