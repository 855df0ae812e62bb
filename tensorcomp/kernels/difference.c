/* A chunk of words coded given a prediction of each, a word too: what is coded is the difference of the two, as integers
   in the order of the floats. How large it will be follows from its unit, which the prediction's exponent tells, and
   from its row's level: an element's context is the level less the exponent.

   The first byte tells how. 0: every word is its prediction, and nothing follows. 1, where few words are not: an
   arithmetic coder passes over equal words at the cost of a multiplication each. 2 | states << 4: tANS as in ans.c, a
   table a context, of magnitudes' upper three bits; signs and lower bits are stored as they are.

   1: bytes of the first coder (u32), those of two coders in turn, a half of the rows each. 2: bytes of the coder of
   levels and other side information (u32), four streams, signs and lower bits, the former bytes, which are 8 or more
   since words are loaded. */
#include "difference_dense_decoder.h"
#include "difference_sparse.h"

enum { SPARSE_SHARE = 8, MIN_DENSE = 1 << 13, FEW_ROWS = 64 };

INLINE i64 encode_chunk(const Pair *c, const i32 *log2, i64 states, u8 *out, i64 room, i64 bytes,
                        Scratch *scratch) {
    u64 counts[RATE_SUMS][2];
    TAKE(Sparse, s, 1);
    if (new_sparse(s, c, scratch)) return NO_MEMORY;
    /* A few rows tell where most words changed. */
    for (i64 step = c->rows / FEW_ROWS + 1;; step = 1) {
        u64 changed = 0, seen = 0;
        count_changes(s, counts, step, bytes);
        for (i64 k = 0; k < RATE_SUMS; k++) seen += counts[k][0], changed += counts[k][1];
        int few = c->rows * c->columns < MIN_DENSE || changed * SPARSE_SHARE < seen;
        if (step == 1 && few) return encode_sparse(s, counts, out, room, bytes, scratch);
        if (step == 1 || changed * 2 * SPARSE_SHARE > 4 * seen) break;
    }
    TAKE(Dense, d, 1);
    if (new_dense(d, c, scratch)) return NO_MEMORY;
    d->states = states;
    return encode_dense(d, log2, out, room, bytes, scratch);
}

static Pair chunk_of(const Arg *reference, const Arg *words, i64 mantissa, u64 rest, i64 levels) {
    return (Pair){words->shape[0], words->shape[1], mantissa, levels, rest, reference->data, words->data};
}
static int is_chunk(const Pair *c, i64 bytes) {
    u64 most = bytes < 8 ? ((u64)1 << (8 * bytes - 1)) - 1 : 0;
    return (c->rest == 0 || c->rest == most) && c->mantissa >= 0 && c->mantissa <= 23 &&
           c->rest >> c->mantissa < EXPONENTS;
}

ENTRY(difference_encode) {
    Pair c = chunk_of(&arg[0], &arg[1], arg[2].i, (u64)arg[3].i, arg[4].i);
    i64 bytes = arg[1].itemsize, states = arg[5].i;
    if (!is_chunk(&c, bytes) || states < LEAST_STATES || states > MOST_STATE_BITS || arg[7].size < 5 ||
        arg[6].size != ((i64)1 << states) + 1)
        return BAD_SIZES;
    u8 *out = arg[7].data;
    if (!memcmp(c.words, c.reference, (size_t)(arg[1].size * bytes))) return out[0] = EQUAL, 1;
    switch (bytes) {
    case 1: return encode_chunk(&c, arg[6].data, states, out, arg[7].size, 1, scratch);
    case 2: return encode_chunk(&c, arg[6].data, states, out, arg[7].size, 2, scratch);
    case 4: return encode_chunk(&c, arg[6].data, states, out, arg[7].size, 4, scratch);
    default: return 0;
    }
}

INLINE i64 decode_chunk(const Pair *c, const Arg *data, i64 bytes, Scratch *scratch) {
    const u8 *in = data->data;
    if (in[0] == SPARSE) return decode_sparse(c, data, bytes, scratch);
    if ((in[0] & 15) == DENSE) return decode_dense(c, data, bytes, scratch);
    return DAMAGED_SIDE;
}

/* Set words (r, c) from the data and their predictions; 0, or what is wrong with the data. */
ENTRY(difference_decode) {
    Pair c = chunk_of(&arg[1], &arg[5], arg[2].i, (u64)arg[3].i, arg[4].i);
    i64 bytes = arg[5].itemsize;
    if (!is_chunk(&c, bytes) || arg[0].size < 1 || !arg[5].size) return BAD_SIZES;
    if (arg[0].size == 1 && *(const u8 *)arg[0].data == EQUAL) {
        memcpy(c.words, c.reference, (size_t)(arg[5].size * bytes));
        return 0;
    }
    switch (bytes) {
    case 1: return decode_chunk(&c, &arg[0], 1, scratch);
    case 2: return decode_chunk(&c, &arg[0], 2, scratch);
    case 4: return decode_chunk(&c, &arg[0], 4, scratch);
    default: return DAMAGED_SIDE;
    }
}
