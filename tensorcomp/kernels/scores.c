/* Scores as integer keys in their order: counting, finding and marking the lowest.

   A score's key is its magnitude's bits above (or, if it is negative, below) the key of zero, so that -0.0 and 0.0 are
   equal and keys are in the order of the scores. Words are those of float32 or float64. */
#include "draws.h"

enum { SCORE_DIGIT = 16, KEY_BLOCK = 1024 }; /* bits of a key that a pass decides; keys made at a time */

#define W u32
#define NAME(x) x##_32
#include "scores.inc"
#define W u64
#define NAME(x) x##_64
#include "scores.inc"

#define FOR_SCORES(name, ...)                                             \
    ENTRY(name) {                                                         \
        if (arg[0].itemsize == 4) return name##_32(__VA_ARGS__);          \
        return arg[0].itemsize == 8 ? name##_64(__VA_ARGS__) : BAD_SIZES; \
    }
FOR_SCORES(scores_count_digits, arg)
FOR_SCORES(scores_count_below, arg)
FOR_SCORES(scores_find_equal, arg)
FOR_SCORES(scores_mark_above, arg)
FOR_SCORES(scores_mark_rows, arg, scratch)
FOR_SCORES(scores_mark_groups, arg, scratch)

ENTRY(scores_draw_numbers) {
    u64 state = mixed_seed((u64)arg[0].i), start = (u64)arg[1].i;
    double *numbers = arg[2].data;
    i64 n = arg[2].size;
    for (i64 i = 0; i < n; i++) numbers[i] = draw_fraction(state, start + (u64)i);
    return 0;
}
