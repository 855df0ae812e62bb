/* Words of which many are not their predictions. */
#ifndef TC_DIFFERENCE_DENSE_H
#define TC_DIFFERENCE_DENSE_H
#include "difference_words.h"

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
    const Pair c = d->c; /* which nothing that is stored can change */
    i32 some[DENSE_BLOCK];
    u64 word = 0, used = 0, at = 0;
    memset(counts, 0, (size_t)(2 * BINS << CLASS_BITS) * sizeof *counts);
    for (i64 r = 0, i = 0; r < c.rows; r++) {
        const u8 *bin_of = d->bin_of + bin_sum(d, d->row_levels[r], 0);
        for (i64 stop = i + c.columns; i < stop;) {
            i64 n = min64(stop - i, DENSE_BLOCK);
            for (i64 k = 0; k < n; k++) some[k] = (i32)difference_at(&c, i + k, bytes);
            for (i64 k = 0; k < n; k++, i++) {
                u64 negative = (u32)some[k] >> 31;
                u64 magnitude = ((u32)some[k] ^ (0 - (u32)negative)) + (u32)negative;
                i64 low = low_bits_of(magnitude);
                i64 bin = bin_of[-4 * exponent_of(&c, read_word(c.reference, i, bytes))];
                u16 index = (u16)(bin << CLASS_BITS | ((low << 2) + (i64)(magnitude >> low)));
                indices[i] = index;
                counts[(k & 1) * (BINS << CLASS_BITS) + index]++; /* by turns: neighbours may be equal */
                word |= ((magnitude & (((u64)1 << low) - 1)) << 1 | negative) << used;
                used += (u64)low + (magnitude > 0);
                store64(plain + at, word);
                at += used >> 3;
                word >>= used & 56;
                used &= 7;
            }
        }
    }
    for (i64 k = 0; k < BINS << CLASS_BITS; k++) counts[k] += counts[(BINS << CLASS_BITS) + k];
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
    TAKE(u32, counts, 2 * BINS << CLASS_BITS);
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
#endif
