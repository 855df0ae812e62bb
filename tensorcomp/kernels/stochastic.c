/* Loops with random numbers that depend on nothing but a key and an element's index. */
#include "draws.h"
#include "elements.h"

enum { DRAWN_TOGETHER = 256 };

/* value / scale, rounded up with a probability that equals its fraction, kept within ±top. */
INLINE void round_block(const void *restrict values, i64 n, double inverse, double top,
                        const u64 *restrict draws, i8 *restrict codes, int wide) {
    for (i64 i = 0; i < n; i++) {
        double value = clip_real(read_real(values, i, wide) * inverse + draw_part(draws[i]), top);
        double nearest = round_even(value), below = nearest - only_if(nearest > value, 1.0);
        codes[i] = (i8)(i32)only_if(below == below, below); /* not 0 × infinity, where a scale is almost 0 */
    }
}
INLINE i64 round_groups(const Arg *arg, int wide) {
    u64 state = mixed_seed((u64)arg[4].i), position = (u64)arg[5].i;
    double top = (double)arg[3].i;
    u64 draws[DRAWN_TOGETHER];
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double scale = read_real(arg[2].data, g, wide), inverse = scale > 0 ? 1.0 / scale : 0.0;
        for (i64 i = group.start, end = group.start + group.size, n; i < end; i += n) {
            n = min64(DRAWN_TOGETHER, end - i);
            draw_numbers(state, position, n, draws);
            position += (u64)n;
            const u8 *values = (const u8 *)arg[0].data + i * (wide ? 8 : 4);
            round_block(values, n, inverse, top, draws, (i8 *)arg[6].data + i, wide);
        }
    }
    return 0;
}
ENTRY(stochastic_round) {
    (void)scratch;
    if (arg[3].i < 1 || arg[3].i > 127) return BAD_SIZES;
    return BY_WIDTH(arg[0], round_groups, arg);
}

/* The indices that draw at most a limit, and what they draw; -1 if there is no room for another block. */
ENTRY(stochastic_find_draws) {
    (void)scratch;
    u64 state = mixed_seed((u64)arg[0].i), first = (u64)arg[1].i, limit = (u64)arg[3].i;
    u64 draws[DRAWN_TOGETHER], *numbers = arg[5].data;
    i64 *positions = arg[4].data, n = arg[2].i, room = arg[4].size - DRAWN_TOGETHER, found = 0;
    for (i64 start = 0; start < n; start += DRAWN_TOGETHER) {
        i64 size = min64(DRAWN_TOGETHER, n - start);
        if (found > room) return -1;
        draw_numbers(state, first + (u64)start, size, draws);
        for (i64 i = 0; i < size; i++) {
            positions[found] = start + i;
            numbers[found] = draws[i];
            found += draws[i] <= limit;
        }
    }
    return found;
}
