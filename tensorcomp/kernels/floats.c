/* Floats coded in one call: what `fields` cuts them into, as Huffman codes in contexts of row and column scale (see
   huffman.c) and as bit planes (see bit_planes.h). And `fields` itself.

   A chunk is side information, eight bit streams, each from a whole byte on, and planes, followed by zeros if they have
   less than 8 bytes, since the decoder loads whole words. The side information is one stream of bits (see bits.h): the
   number of contexts, the longest code, whether rows have spans of their own; the alphabet; where there are contexts,
   their steps and the levels of rows and (unless chunks share them) columns; the bits of each stream; which bits of the
   mantissas are stored; from a whole byte on, the code lengths. */
#include "bit_planes.h"
#include "frequency_tables.h"
#include "huffman.c"

/* Where words are cut: bits below the symbol, and those of the symbol moved down. */
typedef struct {
    i64 low;
    u64 mask;
} FieldCut;

#define W u8
#define NAME(x) x##_8
#include "floats.inc"
#define W u16
#define NAME(x) x##_16
#include "floats.inc"
#define W u32
#define NAME(x) x##_32
#include "floats.inc"
#define W u64
#define NAME(x) x##_64
#include "floats.inc"

/* The loops for words of one size. Rests are such words too, however few bits they have. */
typedef struct {
    void (*cut_symbols)(const void *words, i64 first, i64 n, FieldCut cut, u16 *symbols);
    void (*cut_rest)(const void *words, i64 first, i64 n, FieldCut cut, void *rest);
    void (*put_together)(const u16 *symbols, const void *rest, FieldCut cut, void *words, i64 first, i64 n);
    u64 (*used_bits)(const void *words, i64 first, i64 n);
    u8 *(*pack_rest)(const void *rest, i64 n, const u8 *span, u8 *left, u8 *out);
    void (*unpack_rest)(const u8 *data, i64 n, const u8 *span, u8 *left, void *rest);
} WordLoops;
#define WORD_LOOPS(bits)                                        \
    {cut_symbols_##bits, cut_rest_##bits,  put_together_##bits, \
     used_bits_##bits,   pack_rest_##bits, unpack_rest_##bits}
static const WordLoops word_loops[9] = {
    [1] = WORD_LOOPS(8), [2] = WORD_LOOPS(16), [4] = WORD_LOOPS(32), [8] = WORD_LOOPS(64)};

enum { SUM_BITS = 5, COUNT_BITS = 3 };
enum { LEVEL_COST = 3 }; /* bits that the level of a row or column costs, about */

/* A chunk and its parts. */
typedef struct {
    void *words;
    i64 rows, columns, n, itemsize;
    FieldCut cut;
    const WordLoops *loops;
    const u8 *shared;    /* levels of columns that chunks share, or NULL */
    i64 least, greatest; /* symbols */
    int apart;           /* whether rows have spans of their own */
    u8 *spans;           /* (rows or 1, 2) */
    u8 *row_levels, *column_levels, context_of[LEVEL_SUMS];
} Chunk;

static i64 new_chunk(Chunk *k, const Arg *words, const Arg *low, const Arg *mask, const Arg *shared,
                     Scratch *scratch) {
    i64 rows = words->shape[0], columns = words->shape[1];
    TAKE(u8, spans, 2 * rows);
    TAKE(u8, row_levels, rows);
    TAKE(u8, column_levels, columns);
    *k = (Chunk){.words = words->data,
                 .rows = rows,
                 .columns = columns,
                 .n = words->size,
                 .itemsize = words->itemsize,
                 .cut = {low->i & (8 * words->itemsize - 1), (u64)mask->i},
                 .loops = &word_loops[words->itemsize],
                 .shared = shared->data,
                 .spans = spans,
                 .row_levels = row_levels,
                 .column_levels = column_levels};
    if (k->shared) memcpy(column_levels, k->shared, (size_t)columns);
    return 0;
}

static i64 span_count(const Chunk *k) { return k->apart ? k->rows : 1; }
static i64 bytes_of_planes(const Chunk *k) { return plane_bytes(k->spans, k->apart, k->rows, k->columns); }

/* ---- side information ---------------------------------------------------------------------------------- */

static i64 most_bytes(const Chunk *k, const Codes *c) {
    return most_side_bytes(k->rows + k->columns, c->number * c->size, c->size, span_count(k));
}

static i64 put_contexts(u8 *out, i64 at, Steps steps, i64 contexts, const Chunk *k) {
    at = put_bits(out, at, steps.lowest, SUM_BITS);
    at = put_bits(out, at, steps.span, SUM_BITS);
    at = put_bits(out, at, bit_length((u64)contexts) - 1, COUNT_BITS);
    at = put_levels(out, at, k->row_levels, k->rows);
    return k->shared ? at : put_levels(out, at, k->column_levels, k->columns);
}
/* Set the levels, and the context of each sum, of `number` contexts; return the position, or -1. */
static i64 get_contexts(Bytes in, i64 at, i64 number, Chunk *k) {
    i64 lowest = get_bits(in, at, SUM_BITS), span = max64(get_bits(in, at + SUM_BITS, SUM_BITS), 1);
    i64 contexts = (i64)1 << get_bits(in, at + 2 * SUM_BITS, COUNT_BITS), step = max64(contexts / number, 1);
    fill_steps((Steps){lowest, span}, contexts, k->context_of);
    for (int i = 0; i < LEVEL_SUMS; i++) k->context_of[i] = (u8)min64(k->context_of[i] / step, number - 1);
    at = get_levels(in, at + 2 * SUM_BITS + COUNT_BITS, k->row_levels, k->rows);
    return at < 0 || k->shared ? at : get_levels(in, at, k->column_levels, k->columns);
}

/* ---- encoding ------------------------------------------------------------------------------------------ */

/* Find the least and the greatest symbol, the span of all rests, and each row's in `spans`; sum up symbols if asked for. */
static void look_at_words(Chunk *k, Sums *sums, u8 *all) {
    u16 tile[BLOCK], least = UINT16_MAX, greatest = 0;
    u64 of_row = 0, of_all = 0, mask = ((u64)1 << k->cut.low) - 1;
    i64 down = 8 * k->itemsize - 1 - k->cut.low, r = 0, c = 0;
    for (i64 first = 0; first < k->n; first += BLOCK) {
        i64 count = min64(BLOCK, k->n - first);
        k->loops->cut_symbols(k->words, first, count, k->cut, tile);
        for (i64 i = 0; i < count; i++) {
            least = tile[i] < least ? tile[i] : least;
            greatest = tile[i] > greatest ? tile[i] : greatest;
        }
        for (i64 done = 0, run; done < count; done += run) {
            run = min64(k->columns - c, count - done);
            if (sums) sum_words(sums, tile + done, 2, 0, r, c, run);
            of_row |= k->loops->used_bits(k->words, first + done, run);
            if ((c += run) < k->columns) continue;
            of_row = (of_row & mask) | ((of_row >> down) & (mask + 1));
            set_span(of_row, k->spans + 2 * r++);
            of_all |= of_row;
            of_row = c = 0;
        }
    }
    set_span(of_all, all);
    k->least = least;
    k->greatest = greatest;
}

/* Set indices to context << bits | symbol - least, and count them. */
static void fill_indices(const Chunk *k, const Patterns *patterns, u16 *indices, u32 *counters, i64 size) {
    u16 tile[BLOCK], bases[BLOCK + PATTERN_ROOM] = {0};
    i64 r = 0, c = 0;
    for (i64 first = 0; first < k->n; first += BLOCK) {
        i64 count = min64(BLOCK, k->n - first);
        k->loops->cut_symbols(k->words, first, count, k->cut, tile);
        if (patterns) copy_patterns(patterns, &r, &c, bases, count);
        put_pattern(bases, tile, 2, (u16)k->least, indices + first, count);
        count_words(indices + first, 2, count, counters, size);
    }
}

static u8 *put_planes(const Chunk *k, void *rest, u8 *left, u8 *out) {
    i64 step = k->apart ? k->columns : BLOCK;
    const u8 *span = k->spans;
    for (i64 first = 0; first < k->n; first += step, span += 2 * k->apart) {
        i64 count = min64(step, k->n - first);
        k->loops->cut_rest(k->words, first, count, k->cut, rest);
        out = k->loops->pack_rest(rest, count, span, left, out);
    }
    return out;
}

/* (words, bits below the symbol, mask of the symbol, whether rows may be told apart, contexts, width of a level,
   levels of columns or None, out) -> bytes, 0 if they would not be fewer than the words' or symbols are too many */
ENTRY(floats_encode) {
    Chunk k;
    Sums sums;
    Steps steps = {0, 1};
    Patterns patterns;
    Codes c;
    u8 all[2], *out = arg[7].data;
    if (!arg[0].size || arg[4].i < 1) return BAD_SIZES;
    if (new_chunk(&k, &arg[0], &arg[1], &arg[2], &arg[6], scratch)) return NO_MEMORY;
    if (arg[4].i > 1 && new_sums(&sums, k.rows, k.columns, scratch)) return NO_MEMORY;
    look_at_words(&k, arg[4].i > 1 ? &sums : NULL, all);
    k.apart = choose_spans(k.spans, all, k.rows, k.columns, arg[3].i != 0);

    i64 bits = max64(bit_length((u64)(k.greatest - k.least)), 1),
        contexts = min64(arg[4].i, 1 << (16 - bits));
    if (contexts > 1) {
        find_levels(&sums, 0, arg[5].i, k.row_levels, k.column_levels);
        steps = find_steps(k.row_levels, k.rows, k.column_levels, k.columns);
        fill_steps(steps, contexts, k.context_of);
        if (new_patterns(&patterns, k.row_levels, k.rows, k.column_levels, k.columns, k.context_of, bits,
                         scratch))
            return NO_MEMORY;
    }
    TAKE(u16, indices, k.n);
    TAKE(u32, counters, 2 * contexts << bits);
    memset(counters, 0, sizeof *counters * 2 * (size_t)contexts << bits);
    fill_indices(&k, contexts > 1 ? &patterns : NULL, indices, counters, contexts << bits);
    i64 level_bits = LEVEL_COST * (k.rows + (k.shared ? 0 : k.columns));
    if (choose_context_codes(counters, contexts, bits, NARROW, level_bits, &c, scratch)) return NO_MEMORY;
    if (!c.number || c.bits / 8 > k.n * k.itemsize - bytes_of_planes(&k)) return 0;

    i64 room = room_of_one(k.n, c.longest), used[EIGHT], step = max64(k.columns, BLOCK);
    if (arg[7].size < most_bytes(&k, &c) + k.n * k.itemsize + EIGHT + PADDING) return BAD_SIZES;
    TAKE(u8, streams, EIGHT * room);
    TAKE(i64, table, c.number * c.size);
    TAKE(u64, rest, (step * k.itemsize + 7) / 8);
    TAKE(u8, left, step + 64);
    encode_streams(indices, 2, k.n, c.codes, streams, room, used);
    memset(out, 0, (size_t)most_bytes(&k, &c));
    i64 at = put_head(out, c.number, c.longest, k.apart);
    at = put_alphabet(out, at, c.alphabet, c.size, k.least);
    if (c.number > 1) at = put_contexts(out, at, steps, contexts, &k);
    at = put_sizes(out, at, used, EIGHT);
    at = put_spans(out, at, k.spans, span_count(&k));
    at = put_lengths(out, at, c.lengths, c.number, c.size, table);
    u8 *planes = out + (at + 7) / 8, *end;
    planes += join_streams(streams, room, used, planes);
    end = put_planes(&k, rest, left, planes);
    for (; end < planes + PADDING; end++) *end = 0;
    return end - out;
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

/* Read the side information into the chunk and the decoder; return the byte where planes begin, or what is wrong. */
static i64 read_side(Bytes in, Chunk *k, Decoder *d, i64 *number, i64 *used, u16 *values, int *far,
                     u16 *alphabet, Scratch *scratch) {
    i64 size, at = get_head(in, number, &d->longest, &k->apart);
    at = get_alphabet(in, at, min64(NARROW, k->n), alphabet, &size);
    if (at < 0 || d->longest == 0 || d->longest > LONGEST || *number << d->longest > 1 << TABLE_BITS)
        return DAMAGED_SIDE;
    TAKE(i64, table, *number * size);
    TAKE(u8, lengths, *number * size);
    if (*number > 1) at = get_contexts(in, at, *number, k);
    if (at >= 0) at = get_sizes(in, at, used, EIGHT);
    if (at >= 0) at = get_spans(in, at, k->spans, span_count(k), k->cut.low + 1);
    if (at >= 0) at = get_lengths(in, at, d->longest, lengths, *number, size, table);
    if (at < 0) return DAMAGED_SIDE;
    if (!valid_lengths(lengths, *number, size, d->longest)) return NO_PREFIX_CODE;
    *far = alphabet[size - 1] >= NARROW; /* the table gives places in the alphabet then */
    for (i64 a = 0; a < size; a++) values[a] = *far ? (u16)a : alphabet[a];
    if (new_tables(d, lengths, *number, size, values, scratch)) return NO_MEMORY;
    i64 byte = (at + 7) / 8;
    for (int j = 0; j < EIGHT; j++) {
        d->positions[j] = 8 * (u64)byte;
        byte += (used[j] + 7) / 8;
    }
    return byte + max64(bytes_of_planes(k), PADDING) == in.size ? byte : WRONG_SIZE;
}

/* Unpack `count` rests from the element `first` on and put them together with symbols; return where the next ones are. */
static const u8 *take_planes(const Chunk *k, const u16 *symbols, i64 first, i64 count, const u8 *span,
                             const u8 *planes, u64 *rest, u8 *left) {
    k->loops->unpack_rest(planes, count, span, left, rest);
    k->loops->put_together(symbols, rest, k->cut, k->words, first, count);
    return planes + packed_size(count, span[1]);
}

/* (bytes, bits below the symbol, levels of columns or None, words) -> 0, or what is wrong */
ENTRY(floats_decode) {
    Chunk k;
    Decoder d = {.stream = {arg[0].data, arg[0].size}};
    Patterns patterns;
    u16 alphabet[NARROW], values[NARROW], bases[BLOCK + PATTERN_ROOM];
    i64 number, used[EIGHT], r = 0, c = 0;
    int far;
    u64 stops[EIGHT];
    Arg mask = {.i = 0};
    if (arg[0].size < 8 || !arg[3].size) return BAD_SIZES;
    if (new_chunk(&k, &arg[3], &arg[1], &mask, &arg[2], scratch)) return NO_MEMORY;
    i64 byte = read_side(d.stream, &k, &d, &number, used, values, &far, alphabet, scratch);
    if (byte < 0) return byte;
    if (number > 1 && new_patterns(&patterns, k.row_levels, k.rows, k.column_levels, k.columns, k.context_of,
                                   d.longest, scratch))
        return NO_MEMORY;
    i64 step = max64(k.columns, BLOCK);
    TAKE(u16, symbols, k.apart ? k.n : BLOCK);
    TAKE(u64, rest, (step * k.itemsize + 7) / 8);
    TAKE(u8, left, step + 64);
    for (int j = 0; j < EIGHT; j++) stops[j] = d.positions[j] + (u64)used[j];
    const u8 *planes = d.stream.data + byte;
    for (i64 first = 0; first < k.n; first += BLOCK) {
        i64 count = min64(BLOCK, k.n - first);
        u16 *tile = symbols + (k.apart ? first : 0);
        if (number > 1) copy_patterns(&patterns, &r, &c, bases, count);
        decode_words(&d, number > 1 ? bases : NULL, tile, count);
        if (far)
            for (i64 i = 0; i < count; i++) tile[i] = alphabet[tile[i]];
        if (!k.apart) planes = take_planes(&k, tile, first, count, k.spans, planes, rest, left);
    }
    if (memcmp(stops, d.positions, sizeof stops)) return WRONG_END;
    for (i64 row = 0; k.apart && row < k.rows; row++) {
        i64 first = row * k.columns;
        planes = take_planes(&k, symbols + first, first, k.columns, k.spans + 2 * row, planes, rest, left);
    }
    return 0;
}

/* ---- fields -------------------------------------------------------------------------------------------- */

/* Words of 2 bytes as bytes, and back. */
static void to_bytes(const u16 *restrict words, i64 n, u8 *restrict bytes) {
    for (i64 i = 0; i < n; i++) bytes[i] = (u8)words[i];
}
static void from_bytes(const u8 *restrict bytes, i64 n, u16 *restrict words) {
    for (i64 i = 0; i < n; i++) words[i] = bytes[i];
}

/* Symbols have 1 or 2 bytes; rests as many as words, or 1 where these have 2. */
static int fit_fields(const Arg *words, const Arg *symbols, const Arg *rest) {
    return symbols->itemsize <= 2 &&
           (rest->itemsize == words->itemsize || (rest->itemsize == 1 && words->itemsize == 2));
}

/* (words, bits below the symbol, mask of the symbol, symbols, rest) */
ENTRY(fields_split) {
    (void)scratch;
    i64 n = arg[0].size, itemsize = arg[0].itemsize;
    FieldCut cut = {arg[1].i & (8 * itemsize - 1), (u64)arg[2].i};
    const WordLoops *loops = &word_loops[itemsize];
    u16 tile[BLOCK];
    if (!fit_fields(&arg[0], &arg[3], &arg[4])) return BAD_SIZES;
    for (i64 first = 0; first < n; first += BLOCK) {
        i64 count = min64(BLOCK, n - first);
        u16 *symbols = arg[3].itemsize == 2 ? (u16 *)arg[3].data + first : tile;
        loops->cut_symbols(arg[0].data, first, count, cut, symbols);
        if (symbols == tile) to_bytes(tile, count, (u8 *)arg[3].data + first);
        u8 *rest = (u8 *)arg[4].data + first * arg[4].itemsize;
        if (arg[4].itemsize == itemsize) loops->cut_rest(arg[0].data, first, count, cut, rest);
        else {
            loops->cut_rest(arg[0].data, first, count, cut, tile);
            to_bytes(tile, count, rest);
        }
    }
    return 0;
}

/* (symbols, rest, bits below the symbol, words) */
ENTRY(fields_merge) {
    (void)scratch;
    i64 n = arg[3].size, itemsize = arg[3].itemsize;
    FieldCut cut = {arg[2].i & (8 * itemsize - 1), 0};
    u16 symbol_tile[BLOCK], rest_tile[BLOCK];
    if (!fit_fields(&arg[3], &arg[0], &arg[1])) return BAD_SIZES;
    for (i64 first = 0; first < n; first += BLOCK) {
        i64 count = min64(BLOCK, n - first);
        const u16 *symbols = (const u16 *)arg[0].data + first;
        if (arg[0].itemsize == 1) {
            from_bytes((const u8 *)arg[0].data + first, count, symbol_tile);
            symbols = symbol_tile;
        }
        const void *rest = (const u8 *)arg[1].data + first * arg[1].itemsize;
        if (arg[1].itemsize < itemsize) {
            from_bytes(rest, count, rest_tile);
            rest = rest_tile;
        }
        word_loops[itemsize].put_together(symbols, rest, cut, arg[3].data, first, count);
    }
    return 0;
}
