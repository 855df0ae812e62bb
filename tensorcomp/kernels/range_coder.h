/* A binary arithmetic coder, both ways by the same calls: what is coded is what they return. The low part of the range
   is that of bit 0. An encoder whose room is full says so by `full`; a decoder reads zeros behind its bytes. */
#ifndef TC_RANGE_CODER_H
#define TC_RANGE_CODER_H
#include "native.h"

enum {
    PROBABILITY_BITS = 20,
    STABLE_AFTER = 255
}; /* of bit 0; observations of which the next one is a part */
#define CERTAIN ((u32)1 << PROBABILITY_BITS)
#define WHOLE_RANGE ((u64)1 << 56)
#define LEAST_RANGE ((u64)1 << 48)

typedef struct {
    u64 low, range; /* low: of an encoder's range; how far above it a decoder's number is */
    u8 *start, *at, *stop;
    int full;
} Coder;

/* A bit's probability of being 0, learned from those before it; `seen` of them. */
typedef struct {
    u32 zero, seen;
} Bit;

static void new_bits(Bit *bits, i64 n) {
    for (i64 i = 0; i < n; i++) bits[i] = (Bit){CERTAIN / 2, 0};
}

INLINE u64 next_byte(Coder *c) { return c->at < c->stop ? *c->at++ : (c->full++, 0); }

static Coder new_coder(u8 *start, i64 size, int decodes) {
    Coder c = {0, WHOLE_RANGE, start, start, start + size, 0};
    for (int k = 0; decodes && k < 7; k++) c.low = c.low << 8 | next_byte(&c);
    return c;
}

INLINE void renormalize(Coder *c, int decodes) {
    for (; c->range < LEAST_RANGE; c->range <<= 8) {
        if (decodes) c->low = c->low << 8 | next_byte(c);
        else {
            if (c->at < c->stop) *c->at++ = (u8)(c->low >> 48);
            else c->full = 1;
            c->low = (c->low & (LEAST_RANGE - 1)) << 8;
        }
    }
}

INLINE void raise_low(Coder *c, u64 by) {
    c->low += by;
    if (c->low < WHOLE_RANGE) return;
    c->low &= WHOLE_RANGE - 1;
    for (u8 *p = c->at; p > c->start && !++*--p;) {}
}

/* Code a bit that is 0 with a probability above 0 and below CERTAIN. */
INLINE i64 code_bit(Coder *c, u32 zero, i64 bit, int decodes) {
    u64 bound = (c->range >> PROBABILITY_BITS) * zero;
    if (decodes) bit = c->low >= bound;
    if (bit) {
        c->range -= bound;
        if (decodes) c->low -= bound;
        else raise_low(c, bound);
    } else c->range = bound;
    renormalize(c, decodes);
    return bit;
}

INLINE i64 code_learned(Coder *c, Bit *b, i64 bit, int decodes) {
    bit = code_bit(c, b->zero, bit, decodes);
    i32 change = ((bit ? 0 : (i32)CERTAIN) - (i32)b->zero) * 2 / (i32)(2 * b->seen + 3);
    i64 zero = (i64)b->zero + change;
    b->zero = (u32)max64(min64(zero, CERTAIN - 64), 64);
    b->seen += b->seen < STABLE_AFTER;
    return bit;
}

/* The low `count` bits of a value as they are. */
INLINE i64 code_plain(Coder *c, i64 value, i64 count, int decodes) {
    i64 found = 0;
    for (i64 k = count - 1; k >= 0; k--)
        found = found << 1 | code_bit(c, CERTAIN / 2, value >> k & 1, decodes);
    return found;
}

/* A value of `count` bits, each given those above it; nodes: 2**count. */
INLINE i64 code_tree(Coder *c, Bit *nodes, i64 value, i64 count, int decodes) {
    i64 node = 1;
    for (i64 k = count - 1; k >= 0; k--)
        node = node << 1 | code_learned(c, nodes + node, value >> k & 1, decodes);
    return node - ((i64)1 << count);
}

/* Write what is left of an encoder's number; return its bytes, without zeros at the end, which a decoder reads anyway. */
static i64 finish_coder(Coder *c) {
    raise_low(c, LEAST_RANGE - 1); /* a number of one byte is within the range */
    if (c->at < c->stop) *c->at++ = (u8)(c->low >> 48);
    else c->full = 1;
    while (c->at > c->start && !c->at[-1]) c->at--;
    return c->at - c->start;
}
#endif
