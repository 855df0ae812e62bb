/* Canonical length-limited Huffman codes: their lengths, and the tables made of them. */
#ifndef TC_HUFFMAN_CODES_H
#define TC_HUFFMAN_CODES_H
#include <stdlib.h>

#include "native.h"

enum { LENGTH_BITS = 6 };                  /* of a decoder's entry: as many as a 64-bit shift looks at */
enum { NARROW = 1 << (16 - LENGTH_BITS) }; /* values below it fit an entry of 16 bits */
enum { TABLE_BITS = 16 };                  /* of an index into all contexts' tables */

static int by_value(const void *a, const void *b) {
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sort_ascending(i64 *a, i64 n) {
    if (n > 64) {
        qsort(a, (size_t)n, sizeof *a, by_value);
        return;
    }
    for (i64 i = 1; i < n; i++) {
        i64 key = a[i], j = i;
        for (; j > 0 && a[j - 1] > key; j--) a[j] = a[j - 1];
        a[j] = key;
    }
}

/* Turn ascending weights into code depths in place (Moffat & Katajainen 1995). */
static void depths_in_place(i64 *a, i64 n) {
    i64 root = 0, leaf = 2;
    a[0] += a[1];
    for (i64 node = 1; node < n - 1; node++) {
        if (leaf >= n || a[root] < a[leaf]) {
            a[node] = a[root];
            a[root++] = node;
        } else a[node] = a[leaf++];
        if (leaf >= n || (root < node && a[root] < a[leaf])) {
            a[node] += a[root];
            a[root++] = node;
        } else a[node] += a[leaf++];
    }
    a[n - 2] = 0;
    for (i64 node = n - 3; node >= 0; node--) a[node] = a[a[node]] + 1;
    root = n - 2;
    leaf = n - 1;
    for (i64 available = 1, depth = 0; available > 0; depth++) {
        i64 used = 0;
        for (; root >= 0 && a[root] == depth; root--) used++;
        for (; available > used; available--) a[leaf--] = depth;
        available = 2 * used;
    }
}

/* Cut depths (rarest first) to `longest`, then restore Kraft's inequality at least cost. */
static void limit_depths(i64 *depth, i64 n, i64 longest) {
    i64 total = 0, room = (i64)1 << longest;
    for (i64 i = 0; i < n; i++) {
        depth[i] = min64(depth[i], longest);
        total += (i64)1 << (longest - depth[i]);
    }
    for (i64 i = 0; total > room;) { /* lengthen the rarest code that still can be */
        while (depth[i] >= longest) i++;
        depth[i]++;
        total -= (i64)1 << (longest - depth[i]);
    }
    for (i64 i = n - 1; i >= 0; i--) /* give what is left to the most frequent that can use it */
        while (depth[i] > 1 && total + ((i64)1 << (longest - depth[i])) <= room) {
            total += (i64)1 << (longest - depth[i]);
            depth[i]--;
        }
}

/* Set lengths (contexts, alphabet) from counts: Huffman's, cut to `longest`, 0 if absent. room: 2 × alphabet. */
static void code_lengths(const i64 *counts, i64 contexts, i64 alphabet, i64 longest, i64 *room, u8 *lengths) {
    i64 *keys = room, *depth = room + alphabet;
    for (i64 k = 0; k < contexts; k++, counts += alphabet, lengths += alphabet) {
        i64 used = 0;
        for (i64 a = 0; a < alphabet; a++) {
            lengths[a] = 0;
            if (counts[a] > 0) keys[used++] = (counts[a] << 16) | a;
        }
        if (used == 0) continue;
        if (used == 1) {
            lengths[keys[0] & 0xFFFF] = 1;
            continue;
        }
        sort_ascending(keys, used); /* by count, ties by symbol: the same codes everywhere */
        for (i64 i = 0; i < used; i++) depth[i] = keys[i] >> 16;
        depths_in_place(depth, used);
        limit_depths(depth, used, longest);
        for (i64 i = 0; i < used; i++) lengths[keys[i] & 0xFFFF] = (u8)depth[i];
    }
}

/* Whether every context's code lengths make a prefix code of at most `longest` bits. */
static int valid_lengths(const u8 *lengths, i64 contexts, i64 alphabet, i64 longest) {
    for (i64 k = 0; k < contexts; k++, lengths += alphabet) {
        i64 total = 0;
        for (i64 a = 0; a < alphabet; a++) {
            if (lengths[a] > longest) return 0;
            if (lengths[a] > 0) total += (i64)1 << (longest - lengths[a]);
        }
        if (total > (i64)1 << longest) return 0;
    }
    return 1;
}

INLINE u32 reversed_bits(u32 code, i64 length) {
    u32 out = 0;
    for (i64 i = 0; i < length; i++, code >>= 1) out = (out << 1) | (code & 1);
    return out;
}

/* Set codes[symbols[a]] = code << 8 | length of one context, canonical, low bit first. */
static void fill_codes(const u8 *lengths, i64 alphabet, i64 longest, const u16 *symbols, u32 *codes) {
    u32 code = 0;
    for (i64 length = 1; length <= longest; length++, code <<= 1)
        for (i64 a = 0; a < alphabet; a++)
            if (lengths[a] == length) codes[symbols[a]] = (reversed_bits(code++, length) << 8) | (u32)length;
}

/* Set table[bits] = value << LENGTH_BITS | length for one context and all 1 << longest bits; entries of 2 bytes
   for values below NARROW, else of 4. Bits that no code starts with get length 0: a damaged stream then stands
   still, and the check of where it ends finds it. */
INLINE void fill_table_of(const u8 *lengths, i64 alphabet, i64 longest, const u16 *values, void *table,
                          int wide) {
    i64 size = (i64)1 << longest, complete = 0;
    for (i64 a = 0; a < alphabet; a++)
        if (lengths[a] > 0) complete += (i64)1 << (longest - lengths[a]);
    u32 code = 0, none = (u32)values[0] << LENGTH_BITS;
#define SET(bits, entry)                               \
    do {                                               \
        if (wide) ((u32 *)table)[bits] = (u32)(entry); \
        else ((u16 *)table)[bits] = (u16)(entry);      \
    } while (0)
    if (complete < size)
        for (i64 bits = 0; bits < size; bits++) SET(bits, none);
    for (i64 length = 1; length <= longest; length++, code <<= 1)
        for (i64 a = 0; a < alphabet; a++)
            if (lengths[a] == length) {
                u32 entry = ((u32)values[a] << LENGTH_BITS) | (u32)length;
                for (i64 bits = reversed_bits(code, length); bits < size; bits += (i64)1 << length)
                    SET(bits, entry);
                code++;
            }
#undef SET
}
static void fill_table(const u8 *lengths, i64 alphabet, i64 longest, const u16 *values, u16 *table) {
    fill_table_of(lengths, alphabet, longest, values, table, 0);
}
static void fill_wide_table(const u8 *lengths, i64 alphabet, i64 longest, const u16 *values, u32 *table) {
    fill_table_of(lengths, alphabet, longest, values, table, 1);
}

/* Choose as many contexts as are cheapest, and set `best` to their code lengths (number, alphabet); return the
   number. Neighbouring contexts are joined two by two; counts (contexts, alphabet) are overwritten. Counted are the
   codes' bits, 2 for a table's entry, and `level_bits` for what more than one context needs besides.
   room: 2 × alphabet; trial, best: contexts × alphabet. */
static i64 cheapest_lengths(i64 *counts, i64 contexts, i64 alphabet, i64 longest, i64 level_bits, i64 *room,
                            u8 *trial, u8 *best) {
    i64 least = -1, chosen = 0;
    for (i64 number = contexts;; number /= 2) {
        if (number << longest <= (i64)1 << TABLE_BITS) {
            code_lengths(counts, number, alphabet, longest, room, trial);
            i64 cost = 2 * number * alphabet + (number > 1 ? level_bits : 0);
            for (i64 i = 0; i < number * alphabet; i++) cost += counts[i] * trial[i];
            if (least < 0 || cost < least) {
                least = cost;
                chosen = number;
                memcpy(best, trial, (size_t)(number * alphabet));
            }
        }
        if (number == 1) return chosen;
        for (i64 k = 0; k < number / 2; k++)
            for (i64 a = 0; a < alphabet; a++)
                counts[k * alphabet + a] = counts[2 * k * alphabet + a] + counts[(2 * k + 1) * alphabet + a];
    }
}

/* The bits of all codes; each row of `lengths` (number, alphabet) stands for as many of counts (contexts, alphabet). */
static i64 coded_bits(const i64 *counts, i64 contexts, const u8 *lengths, i64 number, i64 alphabet) {
    i64 bits = 0, step = contexts / number;
    for (i64 k = 0; k < contexts; k++)
        for (i64 a = 0; a < alphabet; a++)
            bits += counts[k * alphabet + a] * lengths[k / step * alphabet + a];
    return bits;
}

/* How long the codes of so many symbols may be in so many contexts: tables of eight then fit the nearest cache. */
INLINE i64 longest_for(i64 symbols, i64 contexts) {
    return max64(contexts > 1 ? 11 : 12, bit_length((u64)(symbols - 1)) + 2);
}
#endif
