/* Words of which few are not their predictions. */
#ifndef TC_DIFFERENCE_SPARSE_H
#define TC_DIFFERENCE_SPARSE_H
#include "difference_words.h"

enum {
    RATE_SUMS = 15 + EXPONENTS,
    MIDDLE = 8,
    RATE_CONTEXTS = 32,
    RATE_PARTS = 8,
    MOST_RATE = 18 * RATE_PARTS
};
enum { SHRUNK = 2 }; /* changes as expected that are added to those of a row */

typedef struct {
    Bit one[RATE_CONTEXTS], length[RATE_CONTEXTS / 4][32], second[RATE_CONTEXTS / 4][32], row[16];
} Models;

typedef struct {
    Pair c;
    Coder coders[2]; /* of the first rows and the last ones */
    Models models;
    i64 lowest;             /* sum of the first context */
    u32 zero_of[RATE_SUMS]; /* probability that a word is its prediction, for level + 255 - exponent */
    u8 *row_levels;
} Sparse;

INLINE i64 rate_context(const Sparse *s, i64 sum) {
    return min64(max64(sum - s->lowest, 0), RATE_CONTEXTS - 1);
}

/* A difference that is not 0. */
INLINE i64 code_difference(Coder *c, Models *m, i64 context, i64 difference, int decodes) {
    i64 negative = code_plain(c, difference < 0, 1, decodes), rest = llabs(difference) - 1,
        group = context / 4;
    if (code_learned(c, &m->one[context], rest > 0, decodes)) {
        i64 length = code_tree(c, m->length[group], bit_length((u64)rest) - 1, 5, decodes), found = 1;
        if (length) {
            found = 2 | code_learned(c, &m->second[group][length], rest >> (length - 1) & 1, decodes);
            found = found << (length - 1) | code_plain(c, rest, length - 1, decodes);
        }
        rest = found;
    } else rest = 0;
    return negative ? -rest - 1 : rest + 1;
}

/* Code a word that is not its prediction, from the range that `coders[lane]` has. */
static __attribute__((noinline)) void code_change(Sparse *s, int lane, i64 i, i64 sum, i64 bytes,
                                                  int decodes) {
    Coder *c = &s->coders[lane];
    i64 difference = decodes ? 1 : difference_at(&s->c, i, bytes);
    code_bit(c, s->zero_of[sum], 1, decodes);
    difference = code_difference(c, &s->models, rate_context(s, sum), difference, decodes);
    if (decodes) put_difference(&s->c, i, difference, bytes);
}

/* The next word of a lane; what it needs is in variables of its own. */
#define CODE_WORD(L)                                                                          \
    {                                                                                         \
        i64 sum = sum_##L - exponent_of(&s->c, read_word(s->c.reference, at_##L + j, bytes)); \
        u64 bound = (range_##L >> PROBABILITY_BITS) * s->zero_of[sum];                        \
        int changed = decodes ? low_##L >= bound                                              \
                              : read_word(s->c.reference, at_##L + j, bytes) !=               \
                                    read_word(s->c.words, at_##L + j, bytes);                 \
        if (!changed) range_##L = bound;                                                      \
        if (__builtin_expect(changed || range_##L < LEAST_RANGE, 0)) {                        \
            s->coders[L].range = range_##L;                                                   \
            if (!changed) renormalize(&s->coders[L], decodes);                                \
            else code_change(s, L, at_##L + j, sum, bytes, decodes);                          \
            range_##L = s->coders[L].range;                                                   \
            low_##L = s->coders[L].low;                                                       \
        }                                                                                     \
    }

/* Code a row of each lane; one that is below 0 is left out. */
INLINE void code_rows(Sparse *s, i64 first, i64 second, i64 bytes, int decodes) {
    i64 columns = s->c.columns, at_0 = first * columns, at_1 = second * columns;
    i64 sum_0 = (first < 0 ? 0 : s->row_levels[first]) + EXPONENTS - 1;
    i64 sum_1 = (second < 0 ? 0 : s->row_levels[second]) + EXPONENTS - 1;
    u64 range_0 = s->coders[0].range, range_1 = s->coders[1].range;
    u64 low_0 = s->coders[0].low, low_1 = s->coders[1].low;
    if (first >= 0 && second >= 0)
        for (i64 j = 0; j < columns; j++) {
            CODE_WORD(0)
            CODE_WORD(1)
        }
    else if (first >= 0)
        for (i64 j = 0; j < columns; j++) CODE_WORD(0)
    else
        for (i64 j = 0; j < columns; j++) CODE_WORD(1)
    s->coders[0].range = range_0;
    s->coders[1].range = range_1;
}

/* Code the rows, two at a time; a row of level 0 is its prediction. */
INLINE void code_matrix(Sparse *s, i64 bytes, int decodes) {
    i64 half = (s->c.rows + 1) / 2;
    for (i64 r = 0; r < half; r++) {
        i64 both[2] = {r, half + r};
        for (int k = 0; k < 2; k++) {
            u8 *level = s->row_levels + both[k];
            if (both[k] >= s->c.rows) both[k] = -1;
            else if (s->c.levels) {
                *level = (u8)code_tree(&s->coders[k], s->models.row, *level, 4, decodes);
                if (!*level) both[k] = -1;
            }
        }
        if (both[0] >= 0 || both[1] >= 0) code_rows(s, both[0], both[1], bytes, decodes);
    }
}

/* The share of changed words of rate 1 is 2**-(1 / RATE_PARTS). */
static u32 zero_of_rate(i64 rate) {
    static const u32 roots[RATE_PARTS] = {1048576, 961548, 881744, 808562, 741455, 679917, 623487, 571740};
    u32 one = roots[rate % RATE_PARTS] >> (rate / RATE_PARTS);
    return CERTAIN - (u32)min64(max64(one, 1), CERTAIN - 1024);
}

/* What precedes the rows: the lowest sum, rates. counts: words and changes of each sum. */
static void code_rates(Sparse *s, u64 (*counts)[2], int decodes) {
    Coder *c = &s->coders[0];
    i64 first = RATE_CONTEXTS - 1, last = 0, rate = MOST_RATE;
    u64 found[RATE_CONTEXTS][2] = {{0}};
    u32 zeros[RATE_CONTEXTS];
    s->lowest = code_plain(c, s->lowest, 9, decodes);
    for (i64 k = 0; !decodes && k < RATE_SUMS; k++) {
        i64 context = rate_context(s, k);
        for (int j = 0; j < 2; j++) found[context][j] += counts[k][j];
        if (counts[k][0]) first = min64(first, context), last = max64(last, context);
    }
    first = code_plain(c, first, 5, decodes);
    last = code_plain(c, last, 5, decodes);
    for (i64 k = 0; k < RATE_CONTEXTS; k++) {
        zeros[k] = CERTAIN / 2;
        if (k < first || k > last) continue;
        i64 wanted = log2_ratio(4 * found[k][0] + 4, 4 * found[k][1] + 1, RATE_PARTS);
        i64 expected = k == first ? MOST_RATE / 2 : max64(rate - RATE_PARTS, 0);
        i64 error = min64(wanted, MOST_RATE) - expected, folded = (error << 1) ^ (error >> 63), ones = 0;
        while (ones < MOST_RATE / 2 && code_plain(c, ones < folded >> 2, 1, decodes)) ones++;
        folded = ones << 2 | code_plain(c, folded, 2, decodes);
        rate = min64(max64(expected + ((folded >> 1) ^ -(folded & 1)), 0), MOST_RATE);
        zeros[k] = zero_of_rate(rate);
    }
    for (i64 k = 0; k < RATE_SUMS; k++) s->zero_of[k] = zeros[rate_context(s, k)];
}

/* Words and changes of each level less exponent, of every step-th row. */
INLINE void count_changes(const Sparse *s, u64 (*counts)[2], i64 step, i64 bytes) {
    memset(counts, 0, RATE_SUMS * sizeof *counts);
    for (i64 r = 0; r < s->c.rows; r += step) {
        i64 at = r * s->c.columns, sum = s->row_levels[r] + EXPONENTS - 1;
        if (!s->row_levels[r]) continue;
        for (i64 j = 0; j < s->c.columns; j++) {
            u64 y = read_word(s->c.reference, at + j, bytes);
            u64 *own = counts[sum - exponent_of(&s->c, y)];
            own[0]++;
            own[1] += y != read_word(s->c.words, at + j, bytes);
        }
    }
}

/* Levels of rows: octaves of how often words change, next to what their exponents let expect. */
INLINE void find_rate_levels(Sparse *s, u64 (*counts)[2], i64 bytes) {
    u32 share[EXPONENTS];
    for (i64 e = 0; e < EXPONENTS; e++) {
        u64 *own = counts[MIDDLE + EXPONENTS - 1 - e];
        share[e] = (u32)(own[1] * CERTAIN / maxu(own[0], 1));
    }
    for (i64 r = 0, i = 0; r < s->c.rows; r++) {
        u64 expected = 0, changes = 0;
        for (i64 stop = i + s->c.columns; i < stop; i++) {
            u64 y = read_word(s->c.reference, i, bytes);
            expected += share[exponent_of(&s->c, y)];
            changes += y != read_word(s->c.words, i, bytes);
        }
        i64 octaves = log2_ratio((changes + SHRUNK) * CERTAIN, expected + SHRUNK * CERTAIN, 1);
        s->row_levels[r] = changes ? (u8)min64(max64(MIDDLE + octaves, 1), 15) : 0;
    }
}

/* Set up a coder of rows that have no levels yet. */
static i64 new_sparse(Sparse *s, const Pair *c, Scratch *scratch) {
    TAKE(u8, levels, c->rows);
    memset(levels, MIDDLE, (size_t)c->rows);
    s->c = *c;
    s->row_levels = levels;
    new_bits((Bit *)&s->models, sizeof s->models / sizeof(Bit));
    return 0;
}

/* Code a chunk behind a byte, or return 0 where there is no room. */
INLINE i64 encode_sparse(Sparse *s, u64 (*counts)[2], u8 *out, i64 room, i64 bytes, Scratch *scratch) {
    TAKE(u8, second, room);
    i64 mean = 0, n = s->c.rows * s->c.columns;
    for (i64 k = 0; k < RATE_SUMS; k++) mean += (i64)counts[k][0] * k;
    s->lowest = max64(mean / n - RATE_CONTEXTS / 2, 0);
    if (s->c.levels) {
        find_rate_levels(s, counts, bytes);
        count_changes(s, counts, 1, bytes);
    }
    s->coders[0] = new_coder(out + 5, room - 5, 0);
    s->coders[1] = new_coder(second, room, 0);
    code_rates(s, counts, 0);
    code_matrix(s, bytes, 0);
    i64 sizes[2] = {finish_coder(&s->coders[0]), finish_coder(&s->coders[1])};
    if (s->coders[0].full || s->coders[1].full || 5 + sizes[0] + sizes[1] > room) return 0;
    out[0] = SPARSE;
    store32(out + 1, (u32)sizes[0]);
    memcpy(out + 5 + sizes[0], second, (size_t)sizes[1]);
    return 5 + sizes[0] + sizes[1];
}

INLINE i64 decode_sparse(const Pair *c, const Arg *data, i64 bytes, Scratch *scratch) {
    TAKE(Sparse, s, 1);
    if (new_sparse(s, c, scratch)) return NO_MEMORY;
    u8 *in = data->data;
    i64 rest = data->size - 5, first = rest < 0 ? 0 : (i64)(u32)(load16(in + 1) | (u32)load16(in + 3) << 16);
    if (rest < 0 || first > rest) return WRONG_SIZE;
    memcpy(c->words, c->reference, (size_t)(c->rows * c->columns * bytes));
    s->coders[0] = new_coder(in + 5, first, 1);
    s->coders[1] = new_coder(in + 5 + first, rest - first, 1);
    code_rates(s, NULL, 1);
    code_matrix(s, bytes, 1);
    return ends_well(&s->coders[0]) && ends_well(&s->coders[1]) ? 0 : WRONG_END;
}
#endif
