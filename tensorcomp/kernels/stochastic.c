/* Loops with random numbers that depend on nothing but a key and an element's index. */
#include "draws.h"
#include "elements.h"

enum { DRAWN_TOGETHER = 256 };

/* value / scale, rounded up with a probability that equals its fraction, kept within ±top. */
INLINE void round_block(const void *restrict values, i64 n, double inverse, double top,
                        const double *restrict draws, i8 *restrict codes, int wide) {
    for (i64 i = 0; i < n; i++) {
        double value = clip_real(read_real(values, i, wide) * inverse + draws[i], top);
        value = value == value ? value : 0.0; /* 0 × infinity, of a scale that is almost 0 */
        i32 code = (i32)value;
        codes[i] = (i8)(code - (value < code));
    }
}
INLINE i64 round_groups(const Arg *arg, int wide) {
    u64 state = mixed_seed((u64)arg[4].i), position = (u64)arg[5].i;
    double draws[DRAWN_TOGETHER], top = (double)arg[3].i;
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double scale = read_real(arg[2].data, g, wide), inverse = scale > 0 ? 1.0 / scale : 0.0;
        for (i64 i = group.start, end = group.start + group.size, n; i < end; i += n) {
            n = min64(DRAWN_TOGETHER, end - i);
            for (i64 k = 0; k < n; k++) draws[k] = draw_part(draw_number(state, position + (u64)k));
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
        for (i64 i = 0; i < size; i++) draws[i] = draw_number(state, first + (u64)(start + i));
        for (i64 i = 0; i < size; i++) {
            positions[found] = start + i;
            numbers[found] = draws[i];
            found += draws[i] <= limit;
        }
    }
    return found;
}

INLINE i64 sample_magnitudes(const Arg *arg, int wide) {
    u64 state = mixed_seed((u64)arg[1].i);
    i64 n = arg[0].size, m = arg[2].size, end = 0;
    for (i64 i = 0; i < m; i++) {
        i64 begin = end;
        end = (i + 1) * n / m;
        i64 at = begin + (i64)(draw_number(state, (u64)i) % (u64)max64(end - begin, 1));
        write_real(arg[2].data, i, abs_real(read_real(arg[0].data, at, wide)), wide);
    }
    return 0;
}
ENTRY(stochastic_sample) {
    (void)scratch;
    return arg[2].size > arg[0].size ? BAD_SIZES : BY_WIDTH(arg[0], sample_magnitudes, arg);
}
