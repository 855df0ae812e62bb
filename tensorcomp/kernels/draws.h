/* Random numbers that depend on nothing but a seed and an index: the SplitMix64 sequence. */
#ifndef TC_DRAWS_H
#define TC_DRAWS_H
#include "native.h"

/* A word whose bits all depend on those of another. */
INLINE u64 mixed_seed(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

/* A number of the sequence that `state`, a mixed seed, begins: those of unlike i are unlike. */
INLINE u64 draw_number(u64 state, u64 i) { return mixed_seed(state + (i + 1) * 0x9E3779B97F4A7C15u); }

/* The number as a fraction in [0, 1). */
INLINE double draw_fraction(u64 state, u64 i) { return (double)(i64)(draw_number(state, i) >> 11) * 0x1p-53; }
#endif
