/* Huffman coding of a chunk: eight interleaved streams, each symbol by the code of its context.

   Symbol i goes to bit stream i mod 8, so that eight table look-ups are in flight at once. Codes are written low bit
   first. Tables are indexed by context << bits | symbol when encoding, by context << bits | next bits of the stream
   when decoding. */
#include "bit_planes.h"
#include "bits.h"
#include "contexts.h"
#include "float_side.h"
#include "huffman_codes.h"

enum { EIGHT = 8 }; /* streams */
enum {
    LONGEST = 14,
    CODES_A_WORD = 4
}; /* codes a 64-bit word must hold at any bit offset: 7 + 4 × 14 bits fit */
enum { EIGHT_BATCH = EIGHT * CODES_A_WORD }; /* symbols */
enum { MOST_LENGTHS = 1 << 14 }; /* contexts × symbols: a code is 2 bits longer than equal shares ask for */

/* ---- codes --------------------------------------------------------------------------------------------- */

typedef struct {
    i64 number, size, longest; /* contexts; symbols that occur; how long a code may be */
    i64 bits;                  /* of all codes together */
    u16 *alphabet;             /* (size,) ascending */
    u8 *lengths;               /* (number, size) */
    u32 *codes; /* (contexts << bits of a symbol,): code << 8 | length; joined contexts have one code */
} Codes;

/* Set the symbols that occur, and their counts (contexts, size) back to back. */
static void count_in_contexts(const u32 *counters, i64 contexts, i64 bits, Codes *c, i64 *counts) {
    i64 all = contexts << bits;
    c->size = 0;
    for (i64 symbol = 0; symbol < (i64)1 << bits; symbol++) {
        u32 occurs = 0;
        for (i64 at = symbol; at < all; at += (i64)1 << bits) occurs |= counters[at] | counters[all + at];
        if (occurs) c->alphabet[c->size++] = (u16)symbol;
    }
    for (i64 k = 0; k < contexts; k++)
        for (i64 a = 0; a < c->size; a++) {
            i64 at = (k << bits) | c->alphabet[a];
            *counts++ = (i64)counters[at] + counters[all + at];
        }
}

/* Choose codes in the number of contexts that costs least, 0 if there are more than `most` symbols. counters
   (2, contexts << bits); level_bits: what more than one context needs besides. */
static i64 choose_context_codes(const u32 *counters, i64 contexts, i64 bits, i64 most, i64 level_bits,
                                Codes *c, Scratch *scratch) {
    TAKE(u16, alphabet, (i64)1 << bits);
    TAKE(i64, counts, contexts << bits);
    *c = (Codes){.alphabet = alphabet};
    count_in_contexts(counters, contexts, bits, c, counts);
    if (c->size > most) return 0;
    i64 all = contexts * c->size;
    TAKE(i64, joined, all);
    TAKE(i64, room, 2 * c->size);
    TAKE(u8, trial, all);
    TAKE(u8, lengths, all);
    TAKE(u32, codes, contexts << bits);
    memcpy(joined, counts, (size_t)all * sizeof *joined);
    c->longest = longest_for(c->size, contexts);
    c->number = cheapest_lengths(joined, contexts, c->size, c->longest, level_bits, room, trial, lengths);
    c->bits = coded_bits(counts, contexts, lengths, c->number, c->size);
    c->lengths = lengths;
    c->codes = codes;
    for (i64 k = 0, step = contexts / c->number; k < contexts; k++, codes += (i64)1 << bits)
        if (k % step == 0) fill_codes(lengths + k / step * c->size, c->size, c->longest, alphabet, codes);
        else memcpy(codes, codes - ((i64)1 << bits), sizeof *codes << bits);
    return 0;
}

/* ---- encoding ------------------------------------------------------------------------------------------ */

typedef struct {
    u64 position, word, used;
} BitWriter;

INLINE void write_code(BitWriter *w, const u32 *codes, const void *indices, int wide, i64 i) {
    put_code(&w->word, &w->used, codes[wide ? ((const u16 *)indices)[i] : ((const u8 *)indices)[i]]);
    __asm__(""
            : "+r"(w->word), "+r"(w->used)); /* else GCC adds up lengths ahead, and has no registers left */
}
INLINE void flush(BitWriter *w, u8 *out) { flush_codes(out, &w->position, &w->word, &w->used); }

/* Write all whole batches of the streams `first` … `first` + 3. */
INLINE void write_four(const void *indices, int wide, i64 n, const u32 *codes, u8 *out, i64 first,
                       BitWriter *writers) {
    BitWriter a = writers[first], b = writers[first + 1], c = writers[first + 2], d = writers[first + 3];
    for (i64 i = first, stop = n - n % EIGHT_BATCH; i < stop; i += EIGHT_BATCH) {
#pragma GCC unroll 4
        for (int k = 0; k < EIGHT_BATCH; k += EIGHT) {
            write_code(&a, codes, indices, wide, i + k);
            write_code(&b, codes, indices, wide, i + k + 1);
            write_code(&c, codes, indices, wide, i + k + 2);
            write_code(&d, codes, indices, wide, i + k + 3);
        }
        flush(&a, out);
        flush(&b, out);
        flush(&c, out);
        flush(&d, out);
    }
    writers[first] = a;
    writers[first + 1] = b;
    writers[first + 2] = c;
    writers[first + 3] = d;
}
INLINE void write_eight(const void *indices, int wide, i64 n, const u32 *codes, u8 *out, BitWriter *writers) {
    write_four(indices, wide, n, codes, out, 0, writers);
    write_four(indices, wide, n, codes, out, 4, writers);
    for (i64 i = n - n % EIGHT_BATCH; i < n; i++) {
        write_code(&writers[i % EIGHT], codes, indices, wide, i);
        flush(&writers[i % EIGHT], out);
    }
}

/* The bytes that one of the eight streams of n symbols can take, and what a last store needs behind them. */
INLINE i64 room_of_one(i64 n, i64 longest) { return (n / EIGHT + 1) * longest / 8 + 9; }

/* Write indices of 1 or 2 bytes in eight streams, `room` bytes from one to the next; set the bits of each. */
static void encode_eight(const void *indices, i64 itemsize, i64 n, const u32 *codes, u8 *out, i64 room,
                         i64 *used) {
    BitWriter writers[EIGHT];
    for (i64 j = 0; j < EIGHT; j++) writers[j] = (BitWriter){(u64)(j * room), 0, 0};
    if (itemsize == 1) write_eight(indices, 0, n, codes, out, writers);
    else write_eight(indices, 1, n, codes, out, writers);
    for (i64 j = 0; j < EIGHT; j++) used[j] = (i64)(8 * writers[j].position + writers[j].used) - 8 * j * room;
}

/* Move eight streams, each in whole bytes, together; return their bytes. `out` may begin where they do. */
static i64 join_eight(const u8 *streams, i64 room, const i64 *used, u8 *out) {
    i64 size = 0;
    for (i64 j = 0; j < EIGHT; j++) {
        i64 count = (used[j] + 7) / 8;
        memmove(out + size, streams + j * room, (size_t)count);
        size += count;
    }
    return size;
}

/* (symbols, row levels, column levels, context of each sum, bits, contexts, level bits, lengths, alphabet,
   numbers: contexts, symbols, longest, bits of each stream; streams) -> bytes of the streams */
ENTRY(huffman_encode) {
    const u8 *symbols = arg[0].data;
    i64 n = arg[0].size, itemsize = arg[0].itemsize, rows = arg[0].shape[0], columns = arg[0].shape[1];
    i64 bits = arg[4].i, contexts = arg[5].i, *numbers = arg[9].data, room = arg[10].size / EIGHT;
    if (itemsize > 2 || bits < 8 * (itemsize == 1) || contexts < 1 || contexts << bits > 1 << 16 || !n ||
        room < room_of_one(n, LONGEST))
        return BAD_SIZES;
    TAKE(u32, counters, 2 * contexts << bits);
    memset(counters, 0, sizeof *counters * 2 * (size_t)contexts << bits);
    const void *indices = symbols;
    if (contexts == 1) count_words(symbols, itemsize, n, counters, (i64)1 << bits);
    else {
        ContextRows walk;
        u16 bases[BLOCK], value_of[LEVEL_SUMS];
        TAKE(u16, in_contexts, n);
        if (!arg[1].data || !arg[2].data || !arg[3].data) return BAD_SIZES;
        if (new_context_rows(&walk, value_of, arg[1].data, rows, arg[2].data, columns, arg[3].data, bits,
                             scratch))
            return NO_MEMORY;
        for (i64 first = 0; first < n; first += BLOCK) {
            i64 count = min64(BLOCK, n - first);
            next_bases(&walk, count, bases);
            put_bases(bases, symbols + first * itemsize, itemsize, 0, in_contexts + first, count);
            count_words(in_contexts + first, 2, count, counters, contexts << bits);
        }
        indices = in_contexts;
        itemsize = 2;
    }
    Codes codes;
    if (choose_context_codes(counters, contexts, bits, arg[8].size, arg[6].i, &codes, scratch))
        return NO_MEMORY;
    numbers[0] = codes.number;
    numbers[1] = codes.size;
    numbers[2] = codes.longest;
    if (!codes.number) return 0;
    memcpy(arg[7].data, codes.lengths, (size_t)(codes.number * codes.size));
    memcpy(arg[8].data, codes.alphabet, (size_t)codes.size * sizeof *codes.alphabet);
    encode_eight(indices, itemsize, n, codes.codes, arg[10].data, room, numbers + 3);
    return join_eight(arg[10].data, room, numbers + 3, arg[10].data);
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

typedef struct {
    Bytes stream;         /* with 8 bytes behind the last code */
    u64 positions[EIGHT]; /* in bits; they move to the next codes */
    const void *table;    /* as `fill_table` makes it, for each context; as fill_wide_table if wide */
    i64 longest;
    int wide;
} Decoder;

INLINE u64 table_entry(const void *table, int wide, u64 at) {
    return wide ? ((const u32 *)table)[at] : ((const u16 *)table)[at];
}
INLINE void store_symbol(void *out, i64 itemsize, i64 i, u64 entry) {
    if (itemsize == 1) ((u8 *)out)[i] = (u8)(entry >> LENGTH_BITS);
    else ((u16 *)out)[i] = (u16)(entry >> LENGTH_BITS);
}

/* Decode n symbols, a multiple of 8 unless nothing follows. bases: each one's context << longest, or NULL for a single
   context. Damaged bytes give wrong symbols but never an access out of bounds. `out` is not restrict, as in
   ans_decoder.inc. */
INLINE void decode_symbols(Decoder *d, int wide, const u16 *bases, void *out, i64 itemsize, i64 n) {
    const u8 *stream = d->stream.data;
    const void *table = d->table;
    const u64 mask = ((u64)1 << d->longest) - 1, limit = (u64)d->stream.size - 8;
    u64 p[EIGHT], w[EIGHT];
    memcpy(p, d->positions, sizeof p);
    i64 stop = n - n % EIGHT_BATCH;
    for (i64 i = 0; i < stop; i += EIGHT_BATCH) {
#pragma GCC unroll 8
        for (int j = 0; j < EIGHT; j++) w[j] = refill(stream, p[j], limit);
#pragma GCC unroll 4
        for (int k = 0; k < EIGHT_BATCH; k += EIGHT)
#pragma GCC unroll 8
            for (int j = 0; j < EIGHT; j++) {
                u64 bits = w[j] & mask;
                u64 entry = table_entry(table, wide, bases ? bases[i + k + j] | bits : bits);
                store_symbol(out, itemsize, i + k + j, entry);
                w[j] >>= entry & 63;
            }
#pragma GCC unroll 8
        for (int j = 0; j < EIGHT; j++) p[j] += (u64)leading_zeros(w[j]);
    }
    for (i64 i = stop; i < n; i++) {
        u64 bits = refill(stream, p[i % EIGHT], limit) & mask;
        u64 entry = table_entry(table, wide, bases ? bases[i] | bits : bits);
        store_symbol(out, itemsize, i, entry);
        p[i % EIGHT] += entry & 63;
    }
    memcpy(d->positions, p, sizeof p);
}
static void decode_bytes(Decoder *d, const u16 *bases, u8 *out, i64 n) {
    if (bases) decode_symbols(d, 0, bases, out, 1, n);
    else decode_symbols(d, 0, NULL, out, 1, n);
}
static void decode_words(Decoder *d, const u16 *bases, u16 *out, i64 n) {
    if (d->wide && bases) decode_symbols(d, 1, bases, out, 2, n);
    else if (d->wide) decode_symbols(d, 1, NULL, out, 2, n);
    else if (bases) decode_symbols(d, 0, bases, out, 2, n);
    else decode_symbols(d, 0, NULL, out, 2, n);
}

/* Make the tables of so many contexts from lengths (number, size), which are valid; wide ones for large values. */
static i64 new_tables(Decoder *d, const u8 *lengths, i64 number, i64 size, const u16 *values,
                      Scratch *scratch) {
    d->wide = values[size - 1] >= NARROW;
    TAKE(u32, table, d->wide ? number << d->longest : (number << d->longest) / 2 + 1);
    d->table = table;
    for (i64 k = 0; k < number; k++, lengths += size)
        if (d->wide) fill_wide_table(lengths, size, d->longest, values, table + (k << d->longest));
        else fill_table(lengths, size, d->longest, values, (u16 *)table + (k << d->longest));
    return 0;
}

/* (stream, bit positions, lengths, longest, alphabet, row levels, column levels, context of each sum, out) */
ENTRY(huffman_decode) {
    i64 number = arg[2].shape[0], size = arg[2].shape[1], itemsize = arg[8].itemsize, n = arg[8].size;
    i64 longest = arg[3].i, *positions = arg[1].data;
    u8 *out = arg[8].data;
    Decoder d = {.stream = {arg[0].data, arg[0].size}, .longest = longest};
    ContextRows walk;
    u16 room[BLOCK], value_of[LEVEL_SUMS], *bases = number > 1 ? room : NULL;
    if (arg[0].size < 8 || itemsize > 2 || number < 1 || !size || longest < 1 || longest > LONGEST ||
        number << longest > 1 << TABLE_BITS || (bases && !(arg[5].data && arg[6].data && arg[7].data)))
        return BAD_SIZES;
    if (!valid_lengths(arg[2].data, number, size, longest)) return NO_PREFIX_CODE;
    if (new_tables(&d, arg[2].data, number, size, arg[4].data, scratch)) return NO_MEMORY;
    if (itemsize == 1 && d.wide) return BAD_SIZES; /* bytes have no such symbols */
    if (bases && new_context_rows(&walk, value_of, arg[5].data, arg[8].shape[0], arg[6].data, arg[8].shape[1],
                                  arg[7].data, longest, scratch))
        return NO_MEMORY;
    for (i64 j = 0; j < EIGHT; j++) d.positions[j] = (u64)positions[j];
    for (i64 done = 0; done < n; done += BLOCK) {
        i64 count = min64(BLOCK, n - done);
        if (bases) next_bases(&walk, count, bases);
        if (itemsize == 1) decode_bytes(&d, bases, out + done, count);
        else decode_words(&d, bases, (u16 *)out + done, count);
    }
    for (i64 j = 0; j < EIGHT; j++) positions[j] = (i64)d.positions[j];
    return 0;
}
