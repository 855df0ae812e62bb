/* Words and predictions of them, and their differences as integers in the order of the floats. */
#ifndef TC_DIFFERENCE_WORDS_H
#define TC_DIFFERENCE_WORDS_H
#include "elements.h"
#include "range_coder.h"

enum { EQUAL, SPARSE, DENSE };
enum { EXPONENTS = 256 };

/* Words of `bytes` bytes: `rest` are all bits but a float's sign, 0 of integers, which have no exponent either. */
typedef struct {
    i64 rows, columns, mantissa, levels; /* levels: whether rows have some */
    u64 rest;
    const void *reference;
    void *words;
} Pair;

INLINE i64 exponent_of(const Pair *c, u64 word) { return (i64)((word & c->rest) >> c->mantissa); }
INLINE u64 top_of(const Pair *c) { return c->rest ? c->rest + 1 : 0; }

/* Words as integers in the order of their floats, −0.0 below 0.0; and back. */
INLINE u64 to_ordered(const Pair *c, u64 word, i64 bytes) {
    return word ^ (top_of(c) | (c->rest & (0 - (word >> (8 * bytes - 1)))));
}
INLINE u64 from_ordered(const Pair *c, u64 word, i64 bytes) {
    return word ^ (top_of(c) | (c->rest & ((word >> (8 * bytes - 1) & 1) - 1)));
}
INLINE i64 difference_at(const Pair *c, i64 i, i64 bytes) {
    u64 x = to_ordered(c, read_word(c->words, i, bytes), bytes);
    u64 y = to_ordered(c, read_word(c->reference, i, bytes), bytes);
    i64 unused = 64 - 8 * bytes;
    return (i64)((x - y) << unused) >> unused;
}
INLINE void put_difference(const Pair *c, i64 i, i64 difference, i64 bytes) {
    u64 y = to_ordered(c, read_word(c->reference, i, bytes), bytes) + (u64)difference;
    write_word(c->words, i, from_ordered(c, y & (~(u64)0 >> (64 - 8 * bytes)), bytes), bytes);
}

/* ---- logarithms of integers ---------------------------------------------------------------------------- */

/* log2 of a positive integer in units of 2**-16. */
static i64 log2_of(u64 value) {
    i64 result = bit_length(value) - 1;
    u64 mantissa = result > 31 ? value >> (result - 31) : value << (31 - result); /* in [2^31, 2^32) */
    for (int k = 0; k < 16; k++) {
        mantissa = (mantissa * mantissa) >> 31;
        u64 bit = mantissa >> 32;
        mantissa >>= bit;
        result = result << 1 | (i64)bit;
    }
    return result;
}
/* log2 of a / b, rounded to 1 / `parts`. */
static i64 log2_ratio(u64 a, u64 b, i64 parts) {
    return ((log2_of(a) - log2_of(b)) * parts + (1 << 15)) >> 16;
}

/* Whether a decoder read just what there is: zeros at the end are not stored. */
static int ends_well(const Coder *c) { return c->at == c->stop; }
#endif
