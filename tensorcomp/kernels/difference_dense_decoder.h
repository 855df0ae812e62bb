/* Decode what difference_dense.h encodes. */
#ifndef TC_DIFFERENCE_DENSE_DECODER_H
#define TC_DIFFERENCE_DENSE_DECODER_H
#include "difference_dense.h"

/* What a class stands for: the least magnitude, and how many bits are stored. */
typedef struct {
    u32 least[CLASSES];
    u8 stored[CLASSES];
} Magnitudes;

static void fill_magnitudes(Magnitudes *m) {
    for (u32 k = 0; k < CLASSES; k++) {
        u32 low = k < 8 ? 0 : (k >> 2) - 1;
        m->least[k] = (k - (low << 2)) << low;
        m->stored[k] = (u8)(low + (k > 0));
    }
}

/* Put words of some classes, from element `i` on, whose other bits are at bit `at`; return the bit behind. */
INLINE i64 put_words(const Pair *pair, const Magnitudes *m, Bytes in, i64 at, const u16 *classes, i64 i,
                     i64 n, i64 bytes) {
    const Pair c = *pair; /* which nothing that is stored can change */
    i32 some[DENSE_BLOCK];
    for (i64 k = 0; k < n; k++) {
        i64 stored = m->stored[classes[k]];
        u64 word = load64(in.data + min64(at >> 3, in.size - 8)) >> (at & 7) & (((u64)1 << stored) - 1);
        u32 magnitude = m->least[classes[k]] | (u32)(word >> 1), negative = 0 - (u32)(word & 1);
        some[k] = (i32)((magnitude ^ negative) - negative);
        at += stored;
    }
    for (i64 k = 0; k < n; k++) put_difference(&c, i + k, some[k], bytes);
    return at;
}

INLINE i64 decode_dense(const Pair *c, const Arg *data, i64 bytes, Scratch *scratch) {
    u8 *in = data->data;
    i64 n = c->rows * c->columns, rest = data->size - 5, frequencies[32 * CLASSES];
    u16 owners[1 << MOST_STATE_BITS], bases[DENSE_BLOCK], classes[DENSE_BLOCK], base_of[BIN_SUMS];
    u32 following[CLASSES];
    TAKE(Dense, d, 1);
    if (new_dense(d, c, scratch)) return NO_MEMORY;
    d->states = in[0] >> 4;
    if (rest < 8 || d->states < LEAST_STATES || d->states > MOST_STATE_BITS) return WRONG_SIZE;
    i64 side = (i64)(u32)(load16(in + 1) | (u32)load16(in + 3) << 16), at = 5;
    if (side < 8 || side > rest) return WRONG_SIZE;
    Coder coder = new_coder(in + data->size - side, side, 1);
    if (!code_side(d, &coder, frequencies, 1) || !ends_well(&coder) || d->contexts > 1 << (16 - d->states))
        return DAMAGED_SIDE;
    Reader r = {.stream = in, .limit = (u64)data->size - 8, .escape = NO_ESCAPE};
    Bytes all = {in, data->size};
    i64 stops[ANS_STREAMS];
    for (int k = 0; k < ANS_STREAMS; k++) {
        at += (d->sizes[k] + 7) / 8;
        stops[k] = 8 * at;
        r.at[k] = (u64)(8 * at - d->sizes[k]);
        r.x[k] = (u64)d->starts[k];
    }
    i64 plain = 8 * at, end = plain + d->sizes[4];
    if ((end + 7) / 8 != data->size - side) return WRONG_SIZE;
    TAKE(u32, entries, d->contexts << d->states);
    for (i64 k = 0; k < d->contexts; k++) {
        i64 *own = frequencies + k * d->size, total = sum_of(own, d->size);
        if (total && total != (i64)1 << d->states) return DAMAGED_SIDE;
        fill_decoder(own, d->size, d->states, d->classes, owners, following, entries + (k << d->states));
    }
    r.table = entries;
    fill_bins(d);
    for (i64 k = 0; k < BIN_SUMS; k++) {
        i64 context = 0;
        while (d->bin_of[k] >= d->ends[context]) context++;
        base_of[k] = (u16)(context << d->states);
    }
    Magnitudes magnitudes;
    fill_magnitudes(&magnitudes);
    const Pair own = *c; /* as in put_words */
    for (i64 start = 0, row = 0, column = 0; start < n; start += DENSE_BLOCK) {
        i64 count = min64(n - start, DENSE_BLOCK);
        for (i64 k = 0; k < count;) {
            i64 stop = min64(count, k + own.columns - column);
            const u16 *at_level = base_of + bin_sum(d, d->row_levels[row], 0);
            for (; k < stop; k++, column++)
                bases[k] = at_level[-4 * exponent_of(&own, read_word(own.reference, start + k, bytes))];
            if (column == c->columns) column = 0, row++;
        }
        decode_some_16(&r, bases, classes, count);
        plain = put_words(c, &magnitudes, all, plain, classes, start, count, bytes);
    }
    for (int k = 0; k < ANS_STREAMS; k++)
        if (r.at[k] != (u64)stops[k] || r.x[k]) return WRONG_END;
    return plain == end ? 0 : WRONG_END;
}
#endif
