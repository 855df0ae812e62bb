/* Tables of integers, one row a context, coded like a small grey image: by the LOCO-I predictor (Weinberger, Seroussi
   & Sapiro 2000) and Golomb-Rice codes that adapt to how much the neighbours differ. */
#ifndef TC_FREQUENCY_TABLES_H
#define TC_FREQUENCY_TABLES_H
#include <stdlib.h>

#include "bits.h"

enum {
    UNARY = 16,
    PLAIN = 14,
    MEMORY = 32
}; /* ones before a plain value, its bits; old observations then count half */
enum { LONGEST_FREQUENCY = UNARY + PLAIN }; /* bits of a value at most */

typedef struct {
    i64 sums[16], numbers[16]; /* what each class of activity has seen; half its range at first */
} Means;

static Means new_means(void) {
    Means m;
    for (int i = 0; i < 16; i++) m.sums[i] = ((i64)1 << i) >> 1, m.numbers[i] = 2;
    return m;
}

/* The fewest bits for which numbers << bits reaches the sums. */
INLINE i64 rice_bits(const Means *m, i64 activity) {
    i64 sums = m->sums[activity], numbers = m->numbers[activity];
    i64 bits = max64(bit_length((u64)sums) - bit_length((u64)numbers), 0);
    return bits + (numbers << bits < sums);
}

INLINE void learn(Means *m, i64 activity, i64 value) {
    m->sums[activity] += value;
    if (++m->numbers[activity] >= MEMORY) m->sums[activity] >>= 1, m->numbers[activity] >>= 1;
}

/* The prediction of table[k, a] (contexts, n), and the class of activity around it. */
INLINE i64 predict(const i64 *table, i64 n, i64 k, i64 a, i64 *activity) {
    const i64 *at = table + k * n + a;
    i64 left = a > 0 ? at[-1] : 0;
    if (k == 0) {
        *activity = bit_length((u64)left);
        return left;
    }
    i64 above = at[-n], corner = a > 0 ? at[-n - 1] : 0;
    *activity = bit_length((u64)(llabs(left - corner) + llabs(above - corner)));
    i64 least = min64(left, above), most = max64(left, above); /* branches would go by chance */
    return max64(least, min64(most, left + above - corner));
}

/* The bits of a table (contexts, n), coded into `out`, zeros with 8 bytes to spare, or only counted if it is NULL. */
INLINE i64 code_table(const i64 *table, i64 contexts, i64 n, u8 *out) {
    Means m = new_means();
    i64 position = 0, activity;
    for (i64 a = 0; a < n; a++)
        for (i64 k = 0; k < contexts; k++) {
            i64 expected = predict(table, n, k, a, &activity), error = table[k * n + a] - expected;
            i64 value = llabs(error) > expected ? error + expected : (error << 1) ^ (error >> 63);
            i64 bits = rice_bits(&m, activity), ones = value >> bits;
            i64 unary = min64(ones + 1, UNARY), plain = ones < UNARY ? bits : PLAIN;
            if (out) {
                put_bits(out, position, ((i64)1 << min64(ones, UNARY)) - 1, unary);
                put_bits(out, position + unary, ones < UNARY ? value & (((i64)1 << bits) - 1) : value, plain);
            }
            position += unary + plain;
            learn(&m, activity, value);
        }
    return position;
}
static i64 pack_table(const i64 *table, i64 contexts, i64 n, u8 *out) {
    return code_table(table, contexts, n, out);
}
static i64 table_bits(const i64 *table, i64 contexts, i64 n) { return code_table(table, contexts, n, NULL); }

/* Read a table; return the bits read, or -1 if the data end too early or a value is not in 0 … total. */
static i64 unpack_table(Bytes in, i64 total, i64 *table, i64 contexts, i64 n) {
    Means m = new_means();
    i64 position = 0, limit = 8 * (in.size - 8), activity;
    for (i64 a = 0; a < n; a++)
        for (i64 k = 0; k < contexts; k++) {
            if (position >= limit) return -1;
            i64 expected = predict(table, n, k, a, &activity), bits = rice_bits(&m, activity), value;
            i64 word = get_bits(in, position, 32), ones = 0;
            while (ones < UNARY && (word >> ones) & 1) ones++;
            if (ones < UNARY) {
                value = (ones << bits) | ((word >> (ones + 1)) & (((i64)1 << bits) - 1));
                position += ones + 1 + bits;
            } else {
                value = (word >> UNARY) & ((1 << PLAIN) - 1);
                position += UNARY + PLAIN;
            }
            i64 error = value > 2 * expected ? value - expected
                        : value & 1          ? -((value + 1) >> 1)
                                             : value >> 1;
            i64 found = expected + error;
            if (found < 0 || found > total) return -1;
            table[k * n + a] = found;
            learn(&m, activity, value);
        }
    return position <= limit ? position : -1;
}
#endif
