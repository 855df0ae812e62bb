/* Numbers drawn at random that depend on nothing but a key and an index (SplitMix64). */
#ifndef TC_DRAWS_H
#define TC_DRAWS_H
#include "elements.h"

/* A word whose bits all depend on those of another. */
INLINE u64 mixed_seed(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}
/* Number i of the sequence that mixed_seed(key) begins. */
#define DRAW_STEP 0x9E3779B97F4A7C15u
INLINE u64 draw_number(u64 state, u64 i) { return mixed_seed(state + (i + 1) * DRAW_STEP); }

/* Numbers first .. first + n - 1: vectors add faster than they multiply. */
INLINE void draw_numbers(u64 state, u64 first, i64 n, u64 *restrict out) {
    u64 at = state + (first + 1) * DRAW_STEP;
    for (i64 i = 0; i < n; i++, at += DRAW_STEP) out[i] = mixed_seed(at);
}

/* The top 53 bits of a drawn number as a double from 0 to below 1; vectors have no conversion for them. */
INLINE double draw_part(u64 number) {
    u64 last = -((number >> 11) & 1) & bits_of(0x1p-53);
    double upper = double_of((number >> 12) | 0x3FF0000000000000u) - 1.0;
    return upper + double_of(last);
}

/* A number of the sequence as a fraction in [0, 1). */
INLINE double draw_fraction(u64 state, u64 i) { return (double)(i64)(draw_number(state, i) >> 11) * 0x1p-53; }
#endif
