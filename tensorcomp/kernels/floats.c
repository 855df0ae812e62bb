/* Floats coded in one call: what `fields` cuts them into, as Huffman codes in contexts of row and column scale (see
   huffman.c) and as bit planes (see bit_planes.h). And `fields` itself.

   A chunk is side information, eight bit streams, each from a whole byte on, and planes, followed by zeros if they have
   less than 8 bytes, since the decoder loads whole words. The side information is one stream of bits (see bits.h): the
   number of contexts, the longest code, whether rows have spans of their own; the alphabet; where there are contexts,
   their steps and the levels of rows and (unless chunks share them) columns; the bits of each stream; which bits of the
   mantissas are stored; from a whole byte on, the code lengths. */
#include "bit_planes.h"
#include "frequency_tables.h"

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

/* A chunk: its words, and what its side information tells of them. */
typedef struct {
    void *words;
    i64 rows, columns, n, itemsize;
    FieldCut cut;
    const WordLoops *loops;
    i64 contexts; /* at first; neighbours are joined where that pays */
    Steps steps;
    const u8 *shared; /* levels of columns that chunks share, or NULL */
    u8 *row_levels, *column_levels, context_of[LEVEL_SUMS];
    u16 value_of[LEVEL_SUMS]; /* context << shift of each sum of two levels */
    int apart;                /* whether rows have spans of their own */
    u8 *spans;                /* (rows or 1, 2) */
    u8 *left;                 /* room for words that go to bit planes together */
    void *rest;
} Chunk;

static i64 new_chunk(Chunk *k, const Arg *words, i64 low, const Arg *shared, Scratch *scratch) {
    i64 rows = words->shape[0], columns = words->shape[1];
    TAKE(u8, row_levels, rows);
    TAKE(u8, column_levels, columns);
    TAKE(u8, spans, 2 * rows);
    *k = (Chunk){.words = words->data, .rows = rows, .columns = columns, .n = words->size};
    k->itemsize = words->itemsize;
    k->cut.low = low & (8 * k->itemsize - 1);
    k->loops = &word_loops[k->itemsize];
    k->shared = shared->data;
    k->row_levels = row_levels;
    k->column_levels = column_levels;
    k->spans = spans;
    if (k->shared) memcpy(column_levels, k->shared, (size_t)columns);
    return 0;
}

/* Words that go to bit planes together. */
static i64 plane_step(const Chunk *k) { return k->apart ? k->columns : BLOCK; }
static i64 new_room(Chunk *k, Scratch *scratch) {
    TAKE(u8, left, plane_step(k) + 64);
    TAKE(u8, rest, plane_step(k) * k->itemsize);
    k->left = left;
    k->rest = rest;
    return 0;
}
static i64 span_count(const Chunk *k) { return k->apart ? k->rows : 1; }
static i64 bytes_of_planes(const Chunk *k) { return plane_bytes(k->spans, k->apart, k->rows, k->columns); }
static i64 new_contexts(ContextRows *rows, Chunk *k, i64 shift, Scratch *scratch) {
    return new_context_rows(rows, k->value_of, k->row_levels, k->rows, k->column_levels, k->columns,
                            k->context_of, shift, scratch);
}

/* ---- side information ---------------------------------------------------------------------------------- */

static i64 put_contexts(u8 *out, i64 at, const Chunk *k) {
    at = put_bits(out, at, k->steps.lowest, SUM_BITS);
    at = put_bits(out, at, k->steps.span, SUM_BITS);
    at = put_bits(out, at, bit_length((u64)k->contexts) - 1, COUNT_BITS);
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

/* Find the least and the greatest symbol, the span of all rests, and each row's in `spans`; sum up symbols if asked
   for. */
static void look_at_words(Chunk *k, LevelSums *sums, i64 *least, i64 *greatest, u8 *all) {
    u16 tile[BLOCK], low = UINT16_MAX, high = 0;
    u64 of_row = 0, of_all = 0, mask = ((u64)1 << k->cut.low) - 1;
    i64 down = 8 * k->itemsize - 1 - k->cut.low, r = 0, c = 0;
    for (i64 first = 0; first < k->n; first += BLOCK) {
        i64 count = min64(BLOCK, k->n - first);
        k->loops->cut_symbols(k->words, first, count, k->cut, tile);
        for (i64 i = 0; i < count; i++) {
            low = tile[i] < low ? tile[i] : low;
            high = tile[i] > high ? tile[i] : high;
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
    *least = low;
    *greatest = high;
}

/* Set indices to context << bits | symbol - least, and count them. */
static void fill_indices(const Chunk *k, ContextRows *rows, i64 bits, i64 least, u16 *indices,
                         u32 *counters) {
    u16 tile[BLOCK], bases[BLOCK] = {0};
    for (i64 first = 0; first < k->n; first += BLOCK) {
        i64 count = min64(BLOCK, k->n - first);
        k->loops->cut_symbols(k->words, first, count, k->cut, tile);
        if (k->contexts > 1) next_bases(rows, count, bases);
        put_bases(bases, tile, 2, (u16)least, indices + first, count);
        count_words(indices + first, 2, count, counters, k->contexts << bits);
    }
}

static u8 *put_planes(const Chunk *k, u8 *out) {
    i64 step = plane_step(k);
    const u8 *span = k->spans;
    for (i64 first = 0; first < k->n; first += step, span += 2 * k->apart) {
        i64 count = min64(step, k->n - first);
        k->loops->cut_rest(k->words, first, count, k->cut, k->rest);
        out = k->loops->pack_rest(k->rest, count, span, k->left, out);
    }
    return out;
}

/* Encode indices, and put everything together; return the bytes. */
static i64 put_chunk(Chunk *k, const Codes *c, const u16 *indices, i64 least, Arg out, Scratch *scratch) {
    i64 room = room_of_one(k->n, c->longest), used[EIGHT];
    i64 side = most_side_bytes(k->rows + k->columns, c->number * c->size, c->size, span_count(k));
    u8 *data = out.data;
    if (out.size < side + k->n * k->itemsize + EIGHT + PADDING) return BAD_SIZES;
    if (new_room(k, scratch)) return NO_MEMORY;
    TAKE(u8, streams, EIGHT * room);
    TAKE(i64, table, c->number * c->size);
    encode_eight(indices, 2, k->n, c->codes, streams, room, used);
    memset(data, 0, (size_t)side);
    i64 at = put_head(data, c->number, c->longest, k->apart);
    at = put_alphabet(data, at, c->alphabet, c->size, least);
    if (c->number > 1) at = put_contexts(data, at, k);
    at = put_sizes(data, at, used, EIGHT);
    at = put_spans(data, at, k->spans, span_count(k));
    at = put_lengths(data, at, c->lengths, c->number, c->size, table);
    u8 *planes = data + (at + 7) / 8;
    planes += join_eight(streams, room, used, planes);
    u8 *end = put_planes(k, planes);
    for (; end < planes + PADDING; end++) *end = 0;
    return end - data;
}

/* (words, bits below the symbol, mask of the symbol, whether rows may be told apart, contexts, width of a level,
   levels of columns or None, out) -> bytes, 0 if they would not be fewer than the words' or symbols are too many */
ENTRY(floats_encode) {
    Chunk k;
    Codes c;
    LevelSums sums, *summed = arg[4].i > 1 ? &sums : NULL;
    ContextRows rows;
    i64 least, greatest;
    u8 all[2];
    if (!arg[0].size || arg[4].i < 1) return BAD_SIZES;
    if (new_chunk(&k, &arg[0], arg[1].i, &arg[6], scratch)) return NO_MEMORY;
    if (summed && new_sums(summed, k.rows, k.columns, scratch)) return NO_MEMORY;
    k.cut.mask = (u64)arg[2].i;
    look_at_words(&k, summed, &least, &greatest, all);
    k.apart = choose_spans(k.spans, all, k.rows, k.columns, arg[3].i != 0);

    i64 bits = max64(bit_length((u64)(greatest - least)), 1);
    k.contexts = min64(arg[4].i, 1 << (16 - bits));
    if (k.contexts > 1) {
        find_levels(&sums, 0, arg[5].i, k.row_levels, k.column_levels);
        k.steps = find_steps(k.row_levels, k.rows, k.column_levels, k.columns);
        fill_steps(k.steps, k.contexts, k.context_of);
        if (new_contexts(&rows, &k, bits, scratch)) return NO_MEMORY;
    }
    TAKE(u16, indices, k.n);
    TAKE(u32, counters, 2 * k.contexts << bits);
    memset(counters, 0, sizeof *counters * 2 * (size_t)k.contexts << bits);
    fill_indices(&k, &rows, bits, least, indices, counters);
    i64 level_bits = LEVEL_COST * (k.rows + (k.shared ? 0 : k.columns));
    if (choose_context_codes(counters, k.contexts, bits, NARROW, level_bits, &c, scratch)) return NO_MEMORY;
    if (!c.number || c.bits / 8 > k.n * k.itemsize - bytes_of_planes(&k)) return 0;
    return put_chunk(&k, &c, indices, least, arg[7], scratch);
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

/* What follows side information: streams, then planes. */
typedef struct {
    Decoder decoder;
    i64 contexts;
    u64 stops[EIGHT]; /* bits where streams end */
    int by_place;     /* whether the tables give places in the alphabet, as this is too wide */
    u16 alphabet[NARROW];
    const u8 *planes;
} Coded;

/* Make tables, and find where streams and planes are; return 0, or what is wrong. */
static i64 lay_out(const Chunk *k, Coded *f, i64 begin, const i64 *used, const u8 *lengths, i64 size,
                   Scratch *scratch) {
    Decoder *d = &f->decoder;
    u16 places[NARROW];
    for (i64 a = 0; a < size; a++) places[a] = (u16)a;
    f->by_place = f->alphabet[size - 1] >= NARROW;
    if (!valid_lengths(lengths, f->contexts, size, d->longest)) return NO_PREFIX_CODE;
    if (new_tables(d, lengths, f->contexts, size, f->by_place ? places : f->alphabet, scratch))
        return NO_MEMORY;
    for (int j = 0; j < EIGHT; j++) {
        d->positions[j] = 8 * (u64)begin;
        f->stops[j] = d->positions[j] + (u64)used[j];
        begin += (used[j] + 7) / 8;
    }
    f->planes = d->stream.data + begin;
    return begin + max64(bytes_of_planes(k), PADDING) == d->stream.size ? 0 : WRONG_SIZE;
}

/* Read side information; return 0, or what is wrong. */
static i64 read_side(Chunk *k, Coded *f, Scratch *scratch) {
    Bytes in = f->decoder.stream;
    i64 used[EIGHT], size, longest, at = get_head(in, &f->contexts, &longest, &k->apart);
    at = get_alphabet(in, at, min64(NARROW, k->n), f->alphabet, &size);
    if (at < 0 || longest == 0 || longest > LONGEST || f->contexts << longest > 1 << TABLE_BITS)
        return DAMAGED_SIDE;
    TAKE(i64, table, f->contexts * size);
    TAKE(u8, lengths, f->contexts * size);
    if (f->contexts > 1) at = get_contexts(in, at, f->contexts, k);
    if (at >= 0) at = get_sizes(in, at, used, EIGHT);
    if (at >= 0) at = get_spans(in, at, k->spans, span_count(k), k->cut.low + 1);
    if (at >= 0) at = get_lengths(in, at, longest, lengths, f->contexts, size, table);
    f->decoder.longest = longest;
    return at < 0 ? DAMAGED_SIDE : lay_out(k, f, (at + 7) / 8, used, lengths, size, scratch);
}

/* Put `count` symbols together with the next planes as words from the element `first` on. */
static void take_planes(const Chunk *k, Coded *f, const u16 *symbols, i64 first, i64 count, const u8 *span) {
    k->loops->unpack_rest(f->planes, count, span, k->left, k->rest);
    k->loops->put_together(symbols, k->rest, k->cut, k->words, first, count);
    f->planes += packed_size(count, span[1]);
}

/* (bytes, bits below the symbol, levels of columns or None, words) -> 0, or what is wrong */
ENTRY(floats_decode) {
    Chunk k;
    Coded f = {.decoder.stream = {arg[0].data, arg[0].size}};
    ContextRows rows;
    u16 bases[BLOCK];
    if (arg[0].size < PADDING || !arg[3].size) return BAD_SIZES;
    if (new_chunk(&k, &arg[3], arg[1].i, &arg[2], scratch)) return NO_MEMORY;
    i64 wrong = read_side(&k, &f, scratch);
    if (wrong) return wrong;
    if (new_room(&k, scratch)) return NO_MEMORY;
    if (f.contexts > 1 && new_contexts(&rows, &k, f.decoder.longest, scratch)) return NO_MEMORY;
    TAKE(u16, symbols, k.apart ? k.n : BLOCK); /* rows with spans of their own seldom end where blocks do */
    for (i64 first = 0; first < k.n; first += BLOCK) {
        i64 count = min64(BLOCK, k.n - first);
        u16 *tile = symbols + (k.apart ? first : 0);
        if (f.contexts > 1) next_bases(&rows, count, bases);
        decode_words(&f.decoder, f.contexts > 1 ? bases : NULL, tile, count);
        for (i64 i = 0; f.by_place && i < count; i++) tile[i] = f.alphabet[tile[i]];
        if (!k.apart) take_planes(&k, &f, tile, first, count, k.spans);
    }
    if (memcmp(f.stops, f.decoder.positions, sizeof f.stops)) return WRONG_END;
    for (i64 r = 0, first = 0; k.apart && r < k.rows; r++, first += k.columns)
        take_planes(&k, &f, symbols + first, first, k.columns, k.spans + 2 * r);
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
