/* Tabled asymmetric numeral systems (tANS): tables, and four interleaved streams.

   A table has 2**states states. A symbol of frequency f owns f of them; coding it from state x puts out the low bits
   of x that bring x into f … 2 f - 1, and moves to the state that this number stands for. The encoder goes backwards
   over the symbols and writes each stream backwards, so that the decoder reads forwards. Symbol i goes to stream
   i % 4, so that four table look-ups are in flight at once. Each symbol is coded by the table of its context. */
#include "bits.h"
#include "contexts.h"
#include "frequencies.h"
#include "machines.h"

enum {
    ANS_STREAMS = 4,
    UNROLL = 4,
    BATCH = ANS_STREAMS * UNROLL
}; /* a word holds 4 symbols: 7 + 4 × 12 bits */
enum { CONTEXT_BLOCK = 1024 }; /* elements whose contexts are found at once */
enum { MOST_STATE_BITS = 12 };

/* ---- indices --------------------------------------------------------------------------------------- */

/* Signed integers 0, -1, 1, -2 … as 0, 1, 2, 3 …, so that small ones stand for small magnitudes. */
INLINE u16 fold16(i16 value) { return (u16)(value << 1) ^ (u16)(value >> 15); }
INLINE u16 unfold16(u16 symbol) { return (u16)(symbol >> 1) ^ (u16)(0 - (symbol & 1)); }

/* Set the symbols of integers of 1 or 2 bytes. */
INLINE void find_symbols(const void *data, i64 itemsize, int folded, i64 n, u16 *restrict symbols) {
    const u16 *words = data;
    const u8 *bytes = data;
    if (itemsize == 2)
        for (i64 i = 0; i < n; i++) symbols[i] = folded ? fold16((i16)words[i]) : words[i];
    else
        for (i64 i = 0; i < n; i++) symbols[i] = folded ? fold16((i8)bytes[i]) : bytes[i];
}

/* The bits of the largest symbol of integers of 2 bytes. */
static i64 symbol_bits(const u16 *words, i64 n, int is_folded) {
    u16 all = 0, folded = 0;
    for (i64 i = 0; i < n; i++) {
        all |= words[i];
        folded |= fold16((i16)words[i]);
    }
    return bit_length(is_folded ? folded : all);
}

/* Add `offset` where the element belongs to quantizer 1. Where symbols are folded, their elements' parities are those
   of bits 0 and 1 together. */
static void tell_quantizers(Machine m, u8 *states, int folded, u16 offset, u16 symbol_mask, i64 n,
                            u16 *indices) {
    u8 parities[MACHINES] = {0}, quantizers[MACHINES];
    for (i64 start = 0; start < n; start += MACHINES) {
        u16 *restrict some = indices + start;
        i64 count = min64(n - start, MACHINES);
        for (i64 l = 0; l < count; l++) {
            u16 symbol = some[l] & symbol_mask;
            parities[l] = (symbol ^ (folded ? symbol >> 1 : 0)) & 1;
        }
        advance_machines(m, states, parities, quantizers);
        for (i64 l = 0; l < count; l++) some[l] += offset & (u16)-quantizers[l];
    }
}

/* Tables in turn, because an increment of a counter that was just written has to wait: four if they stay in the nearest
   cache, else two. */
enum { COUNTERS_APART = 4, FEW_COUNTERS = 1 << 11 };
static void count_indices(const u16 *indices, i64 n, u32 *const *counters) {
    i64 i = 0;
    for (; i + 4 <= n; i += 4) {
        u64 four = load64((const u8 *)(indices + i));
        counters[0][four & 0xFFFF]++;
        counters[1][four >> 16 & 0xFFFF]++;
        counters[2][four >> 32 & 0xFFFF]++;
        counters[3][four >> 48]++;
    }
    for (; i < n; i++) counters[0][indices[i]]++;
}

/* Set indices (n,) to context << bits | symbol, and counts (size,) of each index. The upper half is that of quantizer
   1, if there is a machine. */
static i64 index_words(const Arg *words, int folded, i64 bits, ContextRows *rows, Machine m, u16 *indices,
                       i64 *counts, i64 size, Scratch *scratch) {
    const u8 *data = words->data;
    i64 n = words->size, itemsize = words->itemsize;
    u8 states[MACHINES] = {0};
    u16 bases[CONTEXT_BLOCK];
    i64 tables = size <= FEW_COUNTERS ? COUNTERS_APART : 2;
    TAKE(u32, counters, tables * size);
    memset(counters, 0, (size_t)(tables * size) * sizeof *counters);
    u32 *in_turn[COUNTERS_APART];
    for (int j = 0; j < COUNTERS_APART; j++) in_turn[j] = counters + j % tables * size;
    for (i64 start = 0; start < n; start += CONTEXT_BLOCK) {
        i64 count = min64(n - start, CONTEXT_BLOCK);
        u16 *restrict some = indices + start;
        find_symbols(data + start * itemsize, itemsize, folded, count, some);
        if (rows->row_levels) {
            next_bases(rows, count, bases);
            for (i64 i = 0; i < count; i++) some[i] |= bases[i];
        }
        if (m.width) tell_quantizers(m, states, folded, (u16)(size / 2), (u16)((1 << bits) - 1), count, some);
        count_indices(some, count, in_turn);
    }
    memset(counts, 0, (size_t)size * sizeof *counts);
    for (i64 j = 0; j < tables; j++)
        for (i64 i = 0; i < size; i++) counts[i] += in_turn[j][i];
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------------- */

static i64 sum_of(const i64 *row, i64 n) {
    i64 total = 0;
    for (i64 a = 0; a < n; a++) total += row[a];
    return total;
}

/* A symbol's states lie far apart: symbols are given state after state in the order 0, step, 2 step … mod 2**states.
   State s is thus met as number s × inverse; the step is odd, so that every state is met once. */
static u64 inverse_step(i64 states) {
    u64 total = (u64)1 << states, step = (total >> 1) + (total >> 3) + 3, inverse = step; /* right mod 8 */
    for (int k = 0; k < 3; k++) inverse *= 2 - step * inverse; /* mod 2**6, 2**12 … */
    return inverse & (total - 1);
}

/* Set owners[i] to the index of the symbol that owns the i-th state met. */
static void list_owners(const i64 *frequencies, i64 n, u16 *owners) {
    for (i64 a = 0; a < n; owners += frequencies[a++])
        for (i64 k = 0, states = frequencies[a]; k < states; k++) owners[k] = (u16)a;
}

/* A decoder's entry: value << 16 | base << 4 | bits. The next state is base + the next `bits` bits of the stream, below
   2**states if a context's frequencies add up to that; where they add up to 0, its entries are. */
static void fill_decoder(const i64 *frequencies, i64 n, i64 states, const u16 *values, u16 *owners,
                         u32 *following, u32 *table) {
    i64 total = (i64)1 << states;
    u64 inverse = inverse_step(states), met = 0;
    if (sum_of(frequencies, n) != total) {
        memset(table, 0, (size_t)total * sizeof *table);
        return;
    }
    for (i64 a = 0; a < n; a++) following[a] = (u32)frequencies[a];
    list_owners(frequencies, n, owners);
    for (i64 state = 0; state < total; state++, met = (met + inverse) & (u64)(total - 1)) {
        u32 a = owners[met], number = following[a]++, bits = (u32)(states + 1 - bit_length(number));
        u32 base = (number << bits) - (u32)total;
        table[state] = (u32)values[a] << 16 | base << 4 | bits;
    }
}

/* An encoder's tables. entries[context << bits | symbol] = find << 40 | escaped << 32 | delta: from state x, 2**states
   and up, (x + delta) >> 16 bits are put out, and the next state is successors[(x >> bits) + find]. */
enum { FIND_SHIFT = 40 };
#define ESCAPED ((u64)1 << 32)

typedef struct {
    i64 states, bits, step; /* step: contexts of the indices that are one context of the table */
    u64 *entries;
    u16 *successors; /* (contexts + 1, 2**states): one more, so that no `find` is negative */
} Encoder;

/* The entry of a symbol of so many states, whose successors start at `first`. */
INLINE u64 encoder_entry(i64 states, i64 frequency, i64 first) {
    i64 most = states + 1 - bit_length((u64)frequency - 1);
    return (u64)(first - frequency) << FIND_SHIFT | (u64)((most << 16) - (frequency << most));
}

/* Set the tables of a context. Where there is an escape symbol, symbols without a frequency are coded as it is. */
static void fill_encoder(const Encoder *e, const i64 *frequencies, i64 n, i64 context, const u16 *symbols,
                         i64 escape, u16 *owners, u32 *following) {
    u64 inverse = inverse_step(e->states), met = 0;
    i64 first = (context + 1) << e->states, total = (i64)1 << e->states, size = (i64)1 << e->bits;
    u64 *entries = e->entries + (context * e->step << e->bits), other = 0;
    for (i64 a = 0; a < n; first += frequencies[a++]) {
        following[a] = (u32)first;
        if (symbols[a] == escape && frequencies[a])
            other = encoder_entry(e->states, frequencies[a], first) | ESCAPED;
    }
    for (i64 symbol = 0; symbol < size; symbol++) entries[symbol] = other;
    for (i64 a = 0; a < n; a++)
        if (frequencies[a] && symbols[a] != escape)
            entries[symbols[a]] = encoder_entry(e->states, frequencies[a], following[a]);
    for (i64 k = 1; k < e->step; k++) memcpy(entries + k * size, entries, (size_t)size * sizeof *entries);
    if (sum_of(frequencies, n) != total) return;
    list_owners(frequencies, n, owners);
    for (i64 state = 0; state < total; state++, met = (met + inverse) & (u64)(total - 1))
        e->successors[following[owners[met]]++] = (u16)(total + state);
}

/* ---- encoder --------------------------------------------------------------------------------------- */

typedef struct {
    u64 word, x, position; /* bits behind a mark, state, byte below which they go */
} Writer;

INLINE u64 used_bits(const Writer *w) { return 63 - (u64)leading_zeros(w->word); }

INLINE void put_symbol(Writer *w, u64 entry, const u16 *successors) {
    u64 bits = (w->x + (u32)entry) >> 16; /* at most 12 */
    w->word = (w->word << bits) | (w->x & (((u64)1 << bits) - 1));
    w->x = successors[(w->x >> bits) + (entry >> FIND_SHIFT)];
}

/* Store the upper whole bytes of the bits of the word below the position. */
INLINE void flush_below(Writer *w, u8 *out) {
    u64 used = used_bits(w), mark = (u64)1 << (used & 7);
    store64(out + w->position - 8, (w->word << (63 - used)) << 1);
    w->position -= used >> 3;
    w->word = (w->word & (mark - 1)) | mark;
}

/* The values that have no code, and that of the escape symbol, one behind the other as they are. */
typedef struct {
    u8 *data;     /* zeros, with 8 bytes that are not */
    i64 position; /* bit at which the last one starts */
} Escaped;

/* Put the values of some elements, the last one first; those that find no room are left out. */
static void put_escaped(const Encoder *e, const u16 *indices, i64 n, Escaped *to) {
    for (i64 i = n - 1; i >= 0; i--)
        if (e->entries[indices[i]] & ESCAPED && to->position >= e->bits) {
            to->position -= e->bits;
            put_bits(to->data, to->position, indices[i] & (((i64)1 << e->bits) - 1), e->bits);
        }
}

static void encode_streams(const Encoder *e, const u16 *indices, i64 n, u8 *out, Writer *writers,
                           Escaped *to) {
    const u64 *entries = e->entries;
    const u16 *successors = e->successors;
    i64 stop = n - n % BATCH;
    put_escaped(e, indices + stop, n - stop, to);
    for (i64 i = n - 1; i >= stop; i--) {
        put_symbol(&writers[i % ANS_STREAMS], entries[indices[i]], successors);
        flush_below(&writers[i % ANS_STREAMS], out);
    }
    Writer w[ANS_STREAMS];
    memcpy(w, writers, sizeof w);
    for (i64 start = stop - BATCH; start >= 0; start -= BATCH) {
        const u16 *batch = indices + start;
        u64 any = 0;
#pragma GCC unroll 16
        for (int i = BATCH - 1; i >= 0; i--) {
            u64 entry = entries[batch[i]];
            any |= entry;
            put_symbol(&w[i % ANS_STREAMS], entry, successors);
        }
#pragma GCC unroll 4
        for (int j = 0; j < ANS_STREAMS; j++) flush_below(&w[j], out);
        if (any & ESCAPED) put_escaped(e, batch, BATCH, to);
    }
    memcpy(writers, w, sizeof w);
}

/* Code all elements, set heads (8,) to the streams' bits and the decoder's first states, and return the bytes of the
   streams, which are one behind the other in the end; `room` is that of each. */
static i64 put_streams(const Encoder *e, const u16 *indices, i64 n, i64 room, u8 *out, Escaped *escaped,
                       u64 *heads) {
    Writer writers[ANS_STREAMS];
    u64 first = (u64)1 << e->states;
    i64 written = 0;
    for (int j = 0; j < ANS_STREAMS; j++) writers[j] = (Writer){1, first, (u64)((j + 1) * room)};
    encode_streams(e, indices, n, out, writers, escaped);
    for (int j = 0; j < ANS_STREAMS; j++) {
        i64 stop = (j + 1) * room;
        heads[j] = ((u64)stop - writers[j].position) * 8 + used_bits(&writers[j]);
        heads[ANS_STREAMS + j] = writers[j].x - first;
        flush_below(&writers[j], out);
        i64 bytes = ((i64)heads[j] + 7) / 8;
        memmove(out + written, out + stop - bytes, (size_t)bytes);
        written += bytes;
    }
    return written;
}

/* Begin a section of the side information, behind its length. */
static u8 *new_section(u8 **end, i64 bytes) {
    u8 *start = *end + 8;
    store64(*end, (u64)bytes);
    *end = start + bytes;
    return start;
}

ENTRY(ans_encode) {
    i64 n = arg[0].size, rows = arg[0].shape[0], columns = arg[0].shape[1], folded = arg[2].i;
    i64 states = arg[5].i, bits = 8, low_bits = arg[10].i, first = (i64)1 << states, *sizes = arg[13].data;
    if (!n || arg[0].itemsize > 2 || states < 9 || states > MOST_STATE_BITS || arg[4].i < 1 ||
        (arg[4].i & (arg[4].i - 1)) || arg[9].size != first + 1)
        return BAD_SIZES;
    if (arg[0].itemsize == 2) bits = max64(symbol_bits(arg[0].data, n, (int)folded), 1);
    i64 most = (i64)1 << (16 - max64(bits, states));
    Machine m = machine_of(most > 1 ? arg[6].i : 0);
    i64 quantizers = m.width ? 2 : 1, scales = min64(arg[4].i, most / quantizers);
    i64 contexts = quantizers * scales, own_columns = arg[8].data ? 0 : columns;

    /* Contexts, frequencies. */
    ContextRows by_scale = {0};
    u16 value_of[LEVEL_SUMS];
    u8 context_of[LEVEL_SUMS];
    TAKE(u8, levels, rows + columns);
    if (scales > 1) {
        if (arg[8].data) memcpy(levels + rows, arg[8].data, (size_t)columns);
        if (learn_contexts(&arg[1], arg[3].i != 0, arg[7].i, scales, levels, levels + rows, context_of,
                           scratch) == NO_MEMORY ||
            new_context_rows(&by_scale, value_of, levels, rows, levels + rows, columns, context_of, bits,
                             scratch))
            return NO_MEMORY;
    }
    TAKE(u16, indices, n);
    TAKE(i64, counts, contexts << bits);
    Choice choice;
    if (index_words(&arg[0], (int)folded, bits, &by_scale, m, indices, counts, contexts << bits, scratch) ||
        choose_frequencies(counts, contexts, (i64)1 << bits, states, arg[9].data, scales > 1 ? rows : 0,
                           quantizers, &choice, scratch))
        return NO_MEMORY;
    const Counted *best = &choice.best;
    i64 number = best->contexts, size = best->size, step = contexts / number;

    /* The side information: its sections, but for the streams' sizes and states. */
    i64 map = best->symbols[size - 1] / 8 + 1, packed = (choice.table_bits + 7) / 8;
    i64 apart = (choice.escapes * bits + 7) / 8, kept = number > quantizers ? LEVEL_SUMS : 0;
    i64 kept_levels = kept ? rows + own_columns : 0;
    i64 needed = 6 * 8 + 12 * 8 + map + packed + apart + kept + kept_levels;
    i64 room = (n / ANS_STREAMS + 1) * states / 8 + 9;
    if (needed + 8 > arg[11].size || arg[12].size < ANS_STREAMS * room) return BAD_SIZES;
    u8 *end = arg[11].data, *section;
    memset(end, 0, (size_t)needed + 8);
    u64 head[12] = {(u64)number, (u64)choice.escape, (u64)choice.escapes, (u64)(bits | low_bits << 8)};
    u8 *start = new_section(&end, sizeof head);
    section = new_section(&end, map);
    for (i64 a = 0; a < size; a++) section[best->symbols[a] / 8] |= (u8)(1 << best->symbols[a] % 8);
    pack_table(best->counts, number, size, new_section(&end, packed));
    Escaped escaped = {new_section(&end, apart), choice.escapes * bits};
    section = new_section(&end, kept);
    for (i64 i = 0; i < kept; i++) section[i] = (u8)(context_of[i] / step);
    memcpy(new_section(&end, kept_levels), levels, (size_t)kept_levels);

    /* The streams. */
    TAKE(u64, entries, contexts << bits);
    TAKE(u16, successors, (number + 1) << states);
    TAKE(u16, owners, first);
    TAKE(u32, following, size);
    Encoder e = {states, bits, step, entries, successors};
    for (i64 k = 0; k < number; k++)
        fill_encoder(&e, best->counts + k * size, size, k, best->symbols, choice.escape, owners, following);
    sizes[0] = needed;
    sizes[1] = put_streams(&e, indices, n, room, arg[12].data, &escaped, head + 4);
    memcpy(start, head, sizeof head);
    return 0;
}

/* ---- decoder --------------------------------------------------------------------------------------- */

typedef struct {
    const u8 *stream;
    u64 limit;                           /* of a byte that a word is loaded from */
    u64 at[ANS_STREAMS], x[ANS_STREAMS]; /* bits read, states */
    const u32 *table;
    i64 escape; /* the value that stands for rare ones, or NO_ESCAPE */
    const Arg *escaped;
    Machine machine;
    u8 machines[MACHINES]; /* states */
    u16 offset;            /* where the table of quantizer 1 starts */
} Reader;

/* Decode a value, drop its bits from the word, and move to the next state. */
INLINE u32 take_value(const u32 *table, u64 *word, u64 *x) {
    u32 entry = table[*x], bits = entry & 15, value = entry >> 16;
    *x = (entry >> 4 & 0xFFF) + (*word & (((u64)1 << bits) - 1));
    *word >>= bits;
    return value;
}

#define W u8
#define NAME(x) x##_8
#include "ans_decoder.inc"
#define W u16
#define NAME(x) x##_16
#include "ans_decoder.inc"

static void unfold_all(u16 *values, i64 n) {
    for (i64 i = 0; i < n; i++) values[i] = unfold16(values[i]);
}

/* Read values of `width` bits, one behind the other. */
ENTRY(ans_unpack_escaped) {
    Bytes in = {arg[0].data, arg[0].size};
    i64 width = arg[1].i, position = 0;
    (void)scratch;
    if (in.size < 8 || width < 0 || width > 16) return BAD_SIZES;
    for (i64 i = 0; i < arg[3].size; i++, position += width) {
        u16 value = (u16)get_bits(in, position, width);
        if (arg[2].i) value = unfold16(value);
        if (arg[3].itemsize == 1) ((u8 *)arg[3].data)[i] = (u8)value;
        else ((u16 *)arg[3].data)[i] = value;
    }
    return 0;
}

ENTRY(ans_decode) {
    i64 *heads = arg[1].data, number = arg[4].i, size = arg[3].size, states = arg[5].i, folded = arg[6].i;
    i64 most = states < 0 || states > MOST_STATE_BITS ? 0 : (1 << 16) >> states, entries = number << states;
    Bytes packed = {arg[2].data, arg[2].size};
    ContextRows rows = {arg[7].data, arg[8].data, arg[9].data, arg[7].size, arg[8].size, NULL, {NULL}, 0, 0};
    Reader r = {
        .stream = arg[0].data, .limit = (u64)arg[0].size - 8, .escape = arg[11].i, .escaped = &arg[12]};
    if (arg[0].size < 8 || packed.size < 8 || number < 1 || number > most ||
        (rows.row_levels && rows.rows * rows.columns != arg[13].size))
        return BAD_SIZES;
    TAKE(i64, frequencies, number * size);
    TAKE(u32, following, size);
    TAKE(u16, values, size);
    TAKE(u16, owners, (i64)1 << states);
    TAKE(u32, table, entries);
    TAKE(u16, patterns, pattern_room(&rows));
    i64 read = unpack_table(packed, (i64)1 << states, frequencies, number, size);
    if (read < 0 || (read + 7) / 8 != packed.size - 8) return -1;
    memcpy(values, arg[3].data, (size_t)size * sizeof *values);
    if (folded) unfold_all(values, size);
    for (i64 k = 0; k < number; k++) {
        i64 total = sum_of(frequencies + k * size, size);
        if (total != 0 && total != (i64)1 << states) return -1;
        fill_decoder(frequencies + k * size, size, states, values, owners, following, table + (k << states));
    }
    rows.patterns = patterns;
    r.table = table;
    r.machine = machine_of(arg[10].i);
    r.offset = (u16)(entries / 2);
    if (folded && r.escape < NO_ESCAPE) r.escape = unfold16((u16)r.escape);
    for (int j = 0; j < ANS_STREAMS; j++) {
        r.at[j] = (u64)heads[j];
        r.x[j] = (u64)heads[ANS_STREAMS + j] & (((u64)1 << states) - 1);
    }
    i64 taken = arg[13].itemsize == 1 ? decode_all_8(&r, &rows, arg[13].data, arg[13].size)
                                      : decode_all_16(&r, &rows, arg[13].data, arg[13].size);
    for (int j = 0; j < ANS_STREAMS; j++) {
        heads[j] = (i64)r.at[j];
        heads[ANS_STREAMS + j] = (i64)r.x[j];
    }
    return taken;
}
