/* A chunk of words coded given a prediction of each, a word too: what is coded is the difference of the two, as integers
   in the order of the floats. How large it will be follows from its unit, which the prediction's exponent tells, and
   from its row's level: an element's context is the level less the exponent.

   The first byte tells how. 0: every word is its prediction, and nothing follows. 1, where few words are not: an
   arithmetic coder passes over equal words at the cost of a multiplication each. 2 | states << 4: tANS as in ans.c, a
   table a context, of magnitudes' upper three bits; signs and lower bits are stored as they are.

   1: bytes of the first coder (u32), those of two coders in turn, a half of the rows each. 2: bytes of the coder of
   levels and other side information (u32), four streams, signs and lower bits, the former bytes, which are 8 or more
   since words are loaded. */
#include "elements.h"
#include "range_coder.h"

enum { EQUAL, SPARSE, DENSE };
enum { EXPONENTS = 256, SPARSE_SHARE = 8, MIN_DENSE = 1 << 13 };

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

/* ---- few changes --------------------------------------------------------------------------------------- */

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

/* Words and changes of each level less exponent. */
INLINE void count_changes(const Sparse *s, u64 (*counts)[2], i64 bytes) {
    memset(counts, 0, RATE_SUMS * sizeof *counts);
    for (i64 r = 0; r < s->c.rows; r++) {
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
        count_changes(s, counts, bytes);
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

/* ---- many changes -------------------------------------------------------------------------------------- */

enum { CLASS_BITS = 7, CLASSES = 121, BINS = 64, LEVEL_BITS = 6, MOST_LEVEL = (1 << LEVEL_BITS) - 1 };
enum { BIN_SUMS = MOST_LEVEL + 4 * EXPONENTS, TABLE_ENTRY = 7 }; /* bits that an entry takes, about */
enum { SIZE_BITS = 40, DENSE_BLOCK = 1024, LEAST_STATES = 8 };

/* A magnitude's upper three bits, and how many bits are below. */
INLINE i64 low_bits_of(u64 magnitude) { return 61 - leading_zeros(magnitude | 4); }
typedef struct {
    Pair c;
    Bit rows[1 << LEVEL_BITS], present[2], frequencies[16][16];
    u8 *row_levels;
    i64 states, lowest, contexts; /* half the sum of the first bin */
    u8 ends[BINS];                /* the bin behind each context's */
    u8 bin_of[BIN_SUMS];          /* level + 4 × (255 - exponent) */
    u16 classes[CLASSES];         /* those that occur, ascending */
    i64 size;
    i64 sizes[5]; /* bits of the four streams, and of those stored as they are */
    i64 starts[4];
} Dense;

static i64 new_dense(Dense *d, const Pair *c, Scratch *scratch) {
    TAKE(u8, levels, c->rows);
    memset(levels, 0, (size_t)c->rows);
    d->c = *c;
    d->row_levels = levels;
    d->size = 0;
    new_bits(d->rows, (1 << LEVEL_BITS) + 2 + 16 * 16);
    return 0;
}

static void fill_bins(Dense *d) {
    for (i64 k = 0; k < BIN_SUMS; k++) d->bin_of[k] = (u8)min64(max64((k >> 1) - d->lowest, 0), BINS - 1);
}

INLINE i64 bin_sum(const Dense *d, i64 level, u64 reference) {
    return level + 4 * (EXPONENTS - 1 - exponent_of(&d->c, reference));
}

/* A number below 2**15, its length as learned. */
INLINE i64 code_number(Coder *c, Bit *lengths, i64 value, int decodes) {
    i64 length = code_tree(c, lengths, bit_length((u64)value), 4, decodes);
    return length ? (i64)1 << (length - 1) | code_plain(c, value, length - 1, decodes) : 0;
}

/* The table of frequencies, predicted as in frequency_tables.h. Return whether it can be right. */
static int code_frequencies(Dense *d, Coder *c, i64 *table, int decodes) {
    if (decodes) memset(table, 0, (size_t)(d->contexts * d->size) * sizeof *table);
    for (i64 a = 0; a < d->size; a++)
        for (i64 k = 0; k < d->contexts; k++) {
            i64 *own = table + k * d->size + a, activity, expected = predict(table, d->size, k, a, &activity);
            i64 error = *own - expected;
            i64 value = llabs(error) > expected ? error + expected : (error << 1) ^ (error >> 63);
            value = code_number(c, d->frequencies[min64(activity, 15)], value, decodes);
            error = value > 2 * expected ? value - expected : value & 1 ? -((value + 1) >> 1) : value >> 1;
            *own = expected + error;
            if (*own < 0 || *own > (i64)1 << d->states) return 0;
        }
    return 1;
}

/* Levels, contexts, classes that occur, their frequencies, and sizes. Return whether they can be right. */
static int code_side(Dense *d, Coder *c, i64 *frequencies, int decodes) {
    for (i64 r = 0; d->c.levels && r < d->c.rows; r++)
        d->row_levels[r] = (u8)code_tree(c, d->rows, d->row_levels[r], LEVEL_BITS, decodes);
    d->lowest = code_plain(c, d->lowest, 10, decodes);
    d->contexts = code_plain(c, d->contexts - 1, 5, decodes) + 1;
    for (i64 k = 0, last = 0; k < d->contexts; last = d->ends[k++]) {
        d->ends[k] = (u8)(code_plain(c, d->ends[k] - 1, 6, decodes) + 1);
        if (d->ends[k] <= last) return 0;
    }
    i64 size = 0, next = 0;
    for (i64 k = 0, before = 0; k < CLASSES; k++) {
        int occurs = next < d->size && d->classes[next] == k;
        before = code_learned(c, &d->present[before], occurs, decodes);
        if (before && decodes) d->classes[size++] = (u16)k;
        next += occurs;
    }
    if (decodes) d->size = size;
    for (int k = 0; k < 5; k++) {
        i64 length = code_plain(c, bit_length((u64)d->sizes[k]), 6, decodes);
        d->sizes[k] = code_plain(c, d->sizes[k], min64(length, SIZE_BITS), decodes);
    }
    for (int k = 0; k < 4; k++) d->starts[k] = code_plain(c, d->starts[k], d->states, decodes);
    return d->ends[d->contexts - 1] == BINS && d->size > 0 && code_frequencies(d, c, frequencies, decodes);
}

/* ---- encoder ------------------------------------------------------------------------------------------- */

/* How far words are from their predictions, of which the float's unit is the same for all; 0 if that is no number. */
INLINE float distance_at(const Pair *c, i64 i, i64 bytes) {
    i64 shift = 23 - c->mantissa;
    u32 x = (u32)(read_word(c->words, i, bytes) & c->rest) << shift;
    u32 y = (u32)(read_word(c->reference, i, bytes) & c->rest) << shift;
    u32 signs = (u32)((read_word(c->words, i, bytes) ^ read_word(c->reference, i, bytes)) & (c->rest + 1));
    float a, b;
    memcpy(&a, &x, 4);
    memcpy(&b, &y, 4);
    float distance = __builtin_fabsf(signs ? a + b : a - b);
    return distance < 1e30f ? distance : 0;
}

/* log2 of a number above 0, rounded to a quarter. */
static i64 quarters_of(double value) {
    u64 bits = bits_of(value);
    double mantissa = double_of((bits & (((u64)1 << 52) - 1)) | (u64)1023 << 52);
    return 4 * ((i64)(bits >> 52) - 1023) + (mantissa > 1.0905) + (mantissa > 1.2968) + (mantissa > 1.5422) +
           (mantissa > 1.8340);
}

/* Levels of rows: quarter octaves of the mean distance, those of the greatest the highest. Sums have a fixed order. */
INLINE i64 find_distance_levels(Dense *d, i64 bytes, Scratch *scratch) {
    TAKE(i64, quarters, d->c.rows);
    i64 most = 0;
    for (i64 r = 0, i = 0; r < d->c.rows; r++) {
        double sums[8] = {1e-300};
        i64 stop = i + d->c.columns;
        for (; i + 8 <= stop; i += 8)
            for (int k = 0; k < 8; k++) sums[k] += distance_at(&d->c, i + k, bytes);
        for (; i < stop; i++) sums[0] += distance_at(&d->c, i, bytes);
        for (int k = 4; k; k /= 2)
            for (int l = 0; l < k; l++) sums[l] += sums[k + l];
        quarters[r] = quarters_of(sums[0]) + (1 << 14); /* above 0 */
        most = max64(most, quarters[r]);
    }
    for (i64 r = 0; r < d->c.rows; r++) d->row_levels[r] = (u8)max64(MOST_LEVEL - most + quarters[r], 0);
    return 0;
}

/* Choose the lowest bin, so that a mean element is in the middle one. */
INLINE void choose_bins(Dense *d, i64 bytes) {
    i64 n = d->c.rows * d->c.columns, step = n / 4096 + 1, sum = 0, seen = 0;
    for (i64 i = 0; i < n; i += step, seen++)
        sum += bin_sum(d, d->row_levels[i / d->c.columns], read_word(d->c.reference, i, bytes));
    d->lowest = max64(sum / seen / 2 - BINS / 2, 0);
    fill_bins(d);
}

/* Set indices to bin << CLASS_BITS | class, count them, and store signs and low bits. Return the bits stored. */
INLINE i64 index_differences(const Dense *d, u16 *indices, u32 *counts, u8 *plain, i64 bytes) {
    u64 word = 0, used = 0, at = 0;
    memset(counts, 0, (size_t)(BINS << CLASS_BITS) * sizeof *counts);
    for (i64 r = 0, i = 0; r < d->c.rows; r++)
        for (i64 j = 0; j < d->c.columns; j++, i++) {
            i64 difference = difference_at(&d->c, i, bytes);
            u64 magnitude = (u64)(difference < 0 ? -difference : difference);
            i64 low = low_bits_of(magnitude);
            i64 bin = d->bin_of[bin_sum(d, d->row_levels[r], read_word(d->c.reference, i, bytes))];
            u16 index = (u16)(bin << CLASS_BITS | ((low << 2) + (i64)(magnitude >> low)));
            indices[i] = index;
            counts[index]++;
            word |= ((magnitude & (((u64)1 << low) - 1)) << 1 | (difference < 0)) << used;
            used += (u64)low + (magnitude > 0);
            store64(plain + at, word);
            at += used >> 3;
            word >>= used & 56;
            used &= 7;
        }
    return (i64)(8 * at + used);
}

/* What the classes of a context cost with their table, in 2**-16 bit. */
static i64 context_cost(const u32 *counts) {
    i64 total = 0, bits = 0;
    for (i64 k = 0; k < CLASSES; k++) {
        if (!counts[k]) continue;
        total += counts[k];
        bits += (TABLE_ENTRY << 16) - counts[k] * log2_of(counts[k]);
    }
    return total ? bits + total * log2_of((u64)total) : 0;
}
static i64 joint_cost(const u32 *a, const u32 *b) {
    u32 both[CLASSES];
    for (i64 k = 0; k < CLASSES; k++) both[k] = a[k] + b[k];
    return context_cost(both);
}

/* Join neighbouring bins to contexts as long as that saves something, and to 2**16 states at most. The counts (BINS,
   2**CLASS_BITS) become those of contexts. */
static void join_bins(Dense *d, u32 *counts) {
    i64 n = BINS, most = min64((i64)1 << (16 - d->states), 32), costs[BINS], joined[BINS];
    u32 *at[BINS];
    for (i64 k = 0; k < n; k++) {
        at[k] = counts + (k << CLASS_BITS);
        costs[k] = context_cost(at[k]);
        d->ends[k] = (u8)(k + 1);
    }
    for (i64 k = 0; k + 1 < n; k++) joined[k] = joint_cost(at[k], at[k + 1]);
    while (n > 1) {
        i64 best = 0, gain = INT64_MIN;
        for (i64 k = 0; k + 1 < n; k++)
            if (costs[k] + costs[k + 1] - joined[k] > gain)
                best = k, gain = costs[k] + costs[k + 1] - joined[k];
        if (gain < 0 && n <= most) break;
        for (i64 a = 0; a < CLASSES; a++) at[best][a] += at[best + 1][a];
        costs[best] = joined[best];
        d->ends[best] = d->ends[best + 1];
        n--;
        for (i64 k = best + 1; k < n; k++) {
            at[k] = at[k + 1], costs[k] = costs[k + 1], joined[k] = joined[k + 1];
            d->ends[k] = d->ends[k + 1];
        }
        if (best > 0) joined[best - 1] = joint_cost(at[best - 1], at[best]);
        if (best + 1 < n) joined[best] = joint_cost(at[best], at[best + 1]);
    }
    d->contexts = n;
    for (i64 k = 0; k < n; k++) memmove(counts + (k << CLASS_BITS), at[k], CLASSES * sizeof *counts);
}

/* Set frequencies (contexts, size) of the classes that occur. */
static i64 find_frequencies(Dense *d, const u32 *counts, const i32 *log2, i64 *frequencies,
                            Scratch *scratch) {
    i64 row[CLASSES];
    d->size = 0;
    for (i64 a = 0; a < CLASSES; a++) {
        i64 total = 0;
        for (i64 k = 0; k < d->contexts; k++) total += counts[(k << CLASS_BITS) + a];
        if (total) d->classes[d->size++] = (u16)a;
    }
    TAKE(i64, keys, 2 * d->size);
    TAKE(u16, winners, 8 * d->size);
    Normalizer z = {
        log2, (i64)1 << d->states, {0, keys, winners}, {0, keys + d->size, winners + 4 * d->size}};
    for (i64 k = 0; k < d->contexts; k++) {
        for (i64 a = 0; a < d->size; a++) row[a] = counts[(k << CLASS_BITS) + d->classes[a]];
        normalize_row(&z, row, d->size, frequencies + k * d->size);
    }
    return 0;
}

/* Code the streams of classes behind `out`; return their bytes. */
static i64 put_classes(Dense *d, const u16 *indices, const i64 *frequencies, u8 *out, i64 room,
                       Scratch *scratch) {
    i64 n = d->c.rows * d->c.columns, stream = (n / ANS_STREAMS + 1) * d->states / 8 + 9;
    u64 heads[2 * ANS_STREAMS];
    if (ANS_STREAMS * stream > room) return BAD_SIZES;
    TAKE(u64, entries, BINS << CLASS_BITS);
    TAKE(u16, successors, (d->contexts + 1) << d->states);
    TAKE(u16, owners, (i64)1 << d->states);
    TAKE(u32, following, d->size);
    for (i64 k = 0, bin = 0; k < d->contexts; k++) {
        Encoder one = {d->states, CLASS_BITS, 1, entries + ((bin - k) << CLASS_BITS), successors};
        fill_encoder(&one, frequencies + k * d->size, d->size, k, d->classes, NO_ESCAPE, owners, following);
        for (i64 first = bin++; bin < d->ends[k]; bin++)
            memcpy(entries + (bin << CLASS_BITS), entries + (first << CLASS_BITS), sizeof(u64) << CLASS_BITS);
    }
    Encoder all = {d->states, CLASS_BITS, 1, entries, successors};
    Escaped none = {NULL, 0};
    i64 written = put_streams(&all, indices, n, stream, out, &none, heads);
    for (int k = 0; k < ANS_STREAMS; k++)
        d->sizes[k] = (i64)heads[k], d->starts[k] = (i64)heads[ANS_STREAMS + k];
    return written;
}

/* Code a chunk, or return 0 where there is no room. */
INLINE i64 encode_dense(Dense *d, const i32 *log2, u8 *out, i64 room, i64 bytes, Scratch *scratch) {
    i64 n = d->c.rows * d->c.columns;
    TAKE(u16, indices, n);
    TAKE(u32, counts, BINS << CLASS_BITS);
    TAKE(u8, plain, n * bytes + 8);
    TAKE(i64, frequencies, BINS * CLASSES);
    if (d->c.levels && find_distance_levels(d, bytes, scratch)) return NO_MEMORY;
    choose_bins(d, bytes);
    d->sizes[4] = index_differences(d, indices, counts, plain, bytes);
    join_bins(d, counts);
    if (find_frequencies(d, counts, log2, frequencies, scratch)) return NO_MEMORY;
    i64 stored = (d->sizes[4] + 7) / 8, side = 2 * d->c.rows + 3 * d->contexts * d->size + 256;
    TAKE(u8, streams, 2 * n + 64);
    TAKE(u8, behind, side);
    i64 coded = put_classes(d, indices, frequencies, streams, 2 * n + 64, scratch);
    if (coded < 0) return coded;
    Coder c = new_coder(behind, side, 0);
    code_side(d, &c, frequencies, 0);
    side = finish_coder(&c);
    if (c.full || side < 8 || 5 + coded + stored + side > room) return 0;
    out[0] = (u8)(DENSE | d->states << 4);
    store32(out + 1, (u32)side);
    memcpy(out + 5, streams, (size_t)coded);
    memcpy(out + 5 + coded, plain, (size_t)stored);
    memcpy(out + 5 + coded + stored, behind, (size_t)side);
    return 5 + coded + stored + side;
}

INLINE i64 encode_chunk(const Pair *c, const i32 *log2, i64 states, u8 *out, i64 room, i64 bytes,
                        Scratch *scratch) {
    u64 changed = 0, counts[RATE_SUMS][2];
    TAKE(Sparse, s, 1);
    if (new_sparse(s, c, scratch)) return NO_MEMORY;
    count_changes(s, counts, bytes);
    for (i64 k = 0; k < RATE_SUMS; k++) changed += counts[k][1];
    i64 n = c->rows * c->columns;
    if (n < MIN_DENSE || (i64)changed * SPARSE_SHARE < n)
        return encode_sparse(s, counts, out, room, bytes, scratch);
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

/* ---- decoder ------------------------------------------------------------------------------------------- */

/* Whether a decoder read just what there is: zeros at the end are not stored. */
static int ends_well(const Coder *c) { return c->at == c->stop; }

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

/* Put words of some classes, from element `i` on, whose other bits are at bit `at`; return the bit behind. */
INLINE i64 put_words(const Pair *c, Bytes in, i64 at, const u16 *classes, i64 i, i64 n, i64 bytes) {
    for (i64 k = 0; k < n; k++) {
        u64 class = classes[k], low = class < 8 ? 0 : (class >> 2) - 1;
        u64 word = load64(in.data + min64(at >> 3, in.size - 8)) >> (at & 7);
        u64 magnitude = (class - (low << 2)) << low | (word >> 1 & (((u64)1 << low) - 1));
        i64 negative = -(i64)(word & (class > 0));
        put_difference(c, i + k, ((i64)magnitude ^ negative) - negative, bytes);
        at += (i64)(low + (class > 0));
    }
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
    for (i64 start = 0, row = 0, column = 0; start < n; start += DENSE_BLOCK) {
        i64 count = min64(n - start, DENSE_BLOCK);
        for (i64 k = 0; k < count;) {
            i64 stop = min64(count, k + c->columns - column), level = d->row_levels[row];
            for (; k < stop; k++, column++)
                bases[k] = base_of[bin_sum(d, level, read_word(c->reference, start + k, bytes))];
            if (column == c->columns) column = 0, row++;
        }
        decode_some_16(&r, bases, classes, count);
        plain = put_words(c, all, plain, classes, start, count, bytes);
    }
    for (int k = 0; k < ANS_STREAMS; k++)
        if (r.at[k] != (u64)stops[k] || r.x[k]) return WRONG_END;
    return plain == end ? 0 : WRONG_END;
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
