/* Huffman coding of runs of bytes: two symbols a step one way, up to four a step the other.

   A run is cut into six equal parts, and part j goes to bit stream j; what six does not divide is added to the last
   part. Runs follow each other in the streams. All symbols of a run have one code, so that an entry of a table can
   stand for several: the encoder's for any two neighbours, the decoder's for all symbols that follow from the same
   bits. (As in Zstandard's double-symbol decoder; as streams then advance by what they find, each has a part of its own
   to write.) */
#ifndef TC_HUFFMAN_RUNS_H
#define TC_HUFFMAN_RUNS_H
#include "bits.h"
#include "huffman_codes.h"

enum {
    STREAMS = 6,         /* their words, positions and places just fit the registers */
    LONGEST_IN_RUN = 11, /* bits of a code */
    LOOKS = 5,           /* at the table for a word, which has 56 bits below its mark */
    MOST_AT_ONCE = 4,    /* symbols of a decoder's entry */
    STEP = 4,            /* symbols between two flushes */
    PAIRS_PAY = 4,       /* symbols of a run for each pair that it may have, to code pairs by a table */
    PAIRS_COUNT = 8,     /* and to count pairs */
    SYMBOLS = 256
};

/* ---- counting -------------------------------------------------------------------------------------- */

static void count_pairs(const u8 *run, i64 n, i64 alphabet, i64 *counts, u32 *pairs) {
    memset(pairs, 0, (size_t)(alphabet * SYMBOLS) * sizeof *pairs);
    for (i64 i = 0; i < n; i += 4) {
        pairs[load16(run + i)]++;
        pairs[load16(run + i + 2)]++;
    }
    for (i64 second = 0; second < alphabet; second++) {
        i64 total = 0;
        for (i64 first = 0; first < alphabet; first++) {
            i64 count = pairs[second * SYMBOLS + first];
            total += count;
            counts[first] += count;
        }
        counts[second] += total;
    }
}

/* Add how often each symbol, all below `alphabet`, occurs in a run to counts (256,). An increment has to wait for the
   one before it if that was of the same counter: pairs halve their number. pairs: alphabet × 256 of room. */
static void count_run(const u8 *run, i64 n, i64 alphabet, i64 *counts, u32 *pairs) {
    u32 single[4][SYMBOLS] = {{0}};
    i64 i = 0;
    if (n >= PAIRS_COUNT * alphabet * alphabet) {
        i = n - n % 4;
        count_pairs(run, i, alphabet, counts, pairs);
    }
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) single[k][run[i + k]]++;
    for (; i < n; i++) single[0][run[i]]++;
    for (i64 s = 0; s < alphabet; s++)
        for (int k = 0; k < 4; k++) counts[s] += single[k][s];
}

/* ---- encoder --------------------------------------------------------------------------------------- */

/* Streams that are written: where, the bits not written yet, and how many these are. */
typedef struct {
    u8 *out;
    u64 positions[STREAMS], words[STREAMS], used[STREAMS];
} RunStreams;

/* Bytes that a stream takes at most, of runs of so many symbols in all. */
INLINE i64 stream_room(i64 symbols, i64 runs, i64 longest) {
    return (symbols / STREAMS + runs * STREAMS) * longest / 8 + 16;
}

/* Set pairs[b << 8 | a] to the code of a and then b. */
static void fill_pairs(const u32 *codes, i64 alphabet, u32 *pairs) {
    for (i64 b = 0; b < alphabet; b++) {
        u32 *row = pairs + b * SYMBOLS, second = codes[b] >> 8, second_length = codes[b] & 255;
        for (i64 a = 0; a < alphabet; a++) {
            u32 length = codes[a] & 255, code = (codes[a] >> 8) | (second << length);
            row[a] = (code << 8) | (length + second_length);
        }
    }
}

/* Write the first `size` symbols, a multiple of STEP, of three parts; `codes` are those of pairs or of symbols. */
INLINE void encode_three(RunStreams *s, int stream, const u8 *run, i64 part, i64 size, const u32 *codes,
                         int paired) {
    u64 *positions = s->positions + stream, *words = s->words + stream, *used = s->used + stream;
    u64 p0 = positions[0], p1 = positions[1], p2 = positions[2];
    u64 w0 = words[0], w1 = words[1], w2 = words[2];
    u64 u0 = used[0], u1 = used[1], u2 = used[2];
    u8 *out = s->out;
    const u8 *a0 = run + stream * part, *a1 = a0 + part, *a2 = a1 + part;
    for (i64 i = 0; i < size; i += STEP) {
#pragma GCC unroll 4
        for (i64 at = i; at < i + STEP; at += paired ? 2 : 1) {
            put_code(&w0, &u0, codes[paired ? load16(a0 + at) : a0[at]]);
            put_code(&w1, &u1, codes[paired ? load16(a1 + at) : a1[at]]);
            put_code(&w2, &u2, codes[paired ? load16(a2 + at) : a2[at]]);
        }
        flush_codes(out, &p0, &w0, &u0);
        flush_codes(out, &p1, &w1, &u1);
        flush_codes(out, &p2, &w2, &u2);
    }
    positions[0] = p0, positions[1] = p1, positions[2] = p2;
    words[0] = w0, words[1] = w1, words[2] = w2;
    used[0] = u0, used[1] = u1, used[2] = u2;
}

/* Write a run behind what the streams have. codes (alphabet,) as `fill_codes` makes them, alphabet above all symbols;
   pairs: alphabet × 256 of room. */
static void encode_run(RunStreams *s, const u8 *run, i64 n, const u32 *codes, i64 alphabet, u32 *pairs) {
    i64 part = n / STREAMS, done = part - part % STEP;
    if (n >= PAIRS_PAY * alphabet * alphabet) {
        fill_pairs(codes, alphabet, pairs);
        encode_three(s, 0, run, part, done, pairs, 1);
        encode_three(s, 3, run, part, done, pairs, 1);
    } else {
        encode_three(s, 0, run, part, done, codes, 0);
        encode_three(s, 3, run, part, done, codes, 0);
    }
    for (int j = 0; j < STREAMS; j++) {
        i64 stop = j < STREAMS - 1 ? (j + 1) * part : n;
        for (i64 i = j * part + done; i < stop; i++) {
            put_code(&s->words[j], &s->used[j], codes[run[i]]);
            flush_codes(s->out, &s->positions[j], &s->words[j], &s->used[j]);
        }
    }
}

/* ---- decoder --------------------------------------------------------------------------------------- */

/* The code of a run: for the next `longest` bits, the symbols that they begin with, the first one lowest | the bits of
   all their codes << 32 | their number << 56. */
typedef struct {
    u64 table[1 << LONGEST_IN_RUN];
    u8 lengths[SYMBOLS]; /* of each symbol's code */
    i64 longest;
} RunCode;

/* One symbol an entry: a fifth of the work of `fill_entries`, so better for short runs. */
static void fill_singles(const u16 *single, i64 size, u64 *table) {
    for (i64 bits = 0; bits < size; bits++) {
        u64 entry = single[bits];
        table[bits] = (entry >> LENGTH_BITS) | (entry & 63) << 32 | (u64)1 << 56;
    }
}

/* As many symbols an entry as its bits have, up to four: pairs first, then a pair and what else follows. Bits that no
   code starts with give one symbol of no bits: a damaged stream then stands still, and the check of the end finds it. */
static void fill_entries(const u16 *single, i64 size, u64 *table) {
    const u32 longest = (u32)__builtin_ctzll((u64)size), mask = (1 << LENGTH_BITS) - 1;
    u32 pairs
        [1
         << LONGEST_IN_RUN]; /* symbols | bits of the first one's code << 16 | of both << 20 | number << 24 */
    for (i64 bits = 0; bits < size; bits++) {
        u32 first = single[bits], used = first & mask, next = single[bits >> used], length = next & mask;
        int two = (used != 0) & (length != 0) & (used + length <= longest);
        u32 symbols = (first >> LENGTH_BITS) | (two ? next >> LENGTH_BITS << 8 : 0);
        pairs[bits] = symbols | used << 16 | (used + (two ? length : 0)) << 20 | (two ? 2u : 1u) << 24;
    }
    for (i64 bits = 0; bits < size; bits++) {
        u32 first = pairs[bits], used = (first >> 20) & 15, next = pairs[bits >> used];
        u32 one = (next >> 16) & 15, two = (next >> 20) & 15;
        int some = (one != 0) & (used + one <= longest), both = some & (used + two <= longest);
        u64 symbols = (first & 0xFFFF) | (both ? next & 0xFFFF : some ? next & 0xFF : 0) << 16;
        used += both ? two : some ? one : 0;
        u32 number = (first >> 24) + (both ? next >> 24 : (u32)some);
        table[bits] = symbols | (u64)used << 32 | (u64)number << 56;
    }
}

/* Prepare to decode a run of n symbols; lengths and values (alphabet,) as for `fill_table`. */
static void fill_run_code(RunCode *code, const u8 *lengths, i64 alphabet, i64 longest, const u16 *values,
                          i64 n) {
    u16 single[1 << LONGEST_IN_RUN];
    fill_table(lengths, alphabet, longest, values, single);
    if (n < (i64)8 << longest) fill_singles(single, (i64)1 << longest, code->table);
    else fill_entries(single, (i64)1 << longest, code->table);
    for (i64 a = 0; a < alphabet; a++) code->lengths[values[a]] = lengths[a];
    code->longest = longest;
}

/* Write the next symbols, and drop the bits of their codes. */
INLINE void take_symbols(const u64 *table, u64 mask, u64 *word, u8 **at) {
    u64 entry = table[*word & mask];
    store32(*at, (u32)entry);
    *word >>= (entry >> 32) & 63;
    *at += entry >> 56;
}

/* What is left of a stream's part. */
typedef struct {
    u64 position;
    u8 *at, *stop;
} PartLeft;

/* Read it look by look, without writing behind it. */
static void finish_part(const u8 *stream, u64 limit, const RunCode *code, PartLeft *p) {
    const u64 mask = ((u64)1 << code->longest) - 1;
    while (p->at < p->stop) {
        u64 entry = code->table[refill(stream, p->position, limit) & mask], number = entry >> 56;
        if (p->stop - p->at >= MOST_AT_ONCE) {
            store32(p->at, (u32)entry);
            p->position += (entry >> 32) & 63;
            p->at += number;
            continue;
        }
        for (number = minu(number, (u64)(p->stop - p->at)); number; number--, entry >>= 8) {
            *p->at++ = (u8)entry;
            p->position += code->lengths[entry & 255];
        }
    }
}
/* Some streams finish later than others. In turn, so that one need not wait for what the one before it finds. */
static void finish_parts(const u8 *stream, u64 limit, const RunCode *code, PartLeft *parts) {
    const u64 mask = ((u64)1 << code->longest) - 1;
    for (int busy = 1; busy;) {
        busy = 0;
        for (PartLeft *p = parts; p < parts + STREAMS; p++) {
            u8 *at = p->at;
            if (p->stop - at < MOST_AT_ONCE * LOOKS) continue;
            u64 word = refill(stream, p->position, limit);
            for (int look = 0; look < LOOKS; look++) take_symbols(code->table, mask, &word, &at);
            p->position += (u64)leading_zeros(word);
            p->at = at;
            busy = 1;
        }
    }
    for (PartLeft *p = parts; p < parts + STREAMS; p++) finish_part(stream, limit, code, p);
}

#define EACH_STREAM(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)

/* Read a run of n symbols from the bit `positions` (6,) on, and move these to the next one. The last code must have 8
   bytes behind it; damaged bytes give wrong symbols but never an access out of bounds. */
static void decode_run(Bytes in, u64 *positions, const RunCode *code, u8 *out, i64 n) {
    const u64 part = (u64)n / STREAMS, mask = ((u64)1 << code->longest) - 1, limit = (u64)in.size - 8;
    const u64 *table = code->table;
    const u8 *stream = in.data;
#define DECLARE(j)           \
    u64 p##j = positions[j]; \
    u8 *a##j = out + j * part;
#define FURTHEST(j) furthest = maxu(furthest, (u64)(a##j - (out + j * part))), last = maxu(last, p##j >> 3);
#define REFILL(j) u64 w##j = refill(stream, p##j, ~(u64)0);
#define TAKE_SYMBOLS(j) take_symbols(table, mask, &w##j, &a##j);
#define ADVANCE(j) p##j += (u64)leading_zeros(w##j);
#define LEFT(j) {p##j, a##j, j < STREAMS - 1 ? out + (j + 1) * part : out + n},
    EACH_STREAM(DECLARE)
    for (;;) {
        u64 furthest = 0, last = 0;
        EACH_STREAM(FURTHEST)
        if (last >= limit) break;
        /* As many batches as certainly stay in all parts and in the stream: each takes 7 bytes at most. */
        u64 batches = minu((part - furthest) / (MOST_AT_ONCE * LOOKS), (limit - last) / 7);
        if (batches == 0) break;
        for (; batches; batches--) {
            EACH_STREAM(REFILL)
#pragma GCC unroll 5
            for (int look = 0; look < LOOKS; look++) { EACH_STREAM(TAKE_SYMBOLS) }
            EACH_STREAM(ADVANCE)
        }
    }
    PartLeft parts[STREAMS] = {EACH_STREAM(LEFT)};
    finish_parts(stream, limit, code, parts);
    for (int j = 0; j < STREAMS; j++) positions[j] = parts[j].position;
#undef DECLARE
#undef FURTHEST
#undef REFILL
#undef TAKE_SYMBOLS
#undef ADVANCE
#undef LEFT
}
#undef EACH_STREAM
#endif
