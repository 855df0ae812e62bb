/* A chunk of floats coded, and decoded, in one call each: symbols by Huffman codes of groups of lines, which are rows or
   columns, and the rest as bit planes.

   The bytes are side information and six bit streams as in huffman_runs.h, each from a whole byte on; then the planes.
   The side information is one stream of bits, in order: how many groups, the longest code, whether rows have spans of
   their own, mantissa bits of a symbol, the base of symbols (see float_split.h); the alphabet; where there are groups,
   each line's; the bits of each stream; which bits of the rest are stored; from a whole byte on, the code lengths. */
#include "float_side.h"
#include "float_split.h"
#include "huffman_runs.h"
#include "scale_groups.h"

enum { MANTISSA_FIELD = 3, BASE_FIELD = 16 }; /* bits of the fields of the side information */
enum {
    MOST_MANTISSA_BITS = 4,
    MOST_SYMBOL = 255,
    GROUP_BITS = 2 /* what the group of a line costs, about */
};

/* Lines of symbols, group by group. */
typedef struct {
    i64 lines, length, groups;
    i64 sizes[MOST_GROUPS]; /* lines of each group */
    u8 *symbols, *group_of; /* (lines, length); (lines,) */
    i64 *places;            /* (lines,): of each line in symbols */
} Lines;

/* The code of each group, and what else the side information has of symbols. */
typedef struct {
    i64 number, longest, alphabet, mantissa_bits, base;
    u16 values[SYMBOLS];
    u8 lengths[MOST_GROUPS * SYMBOLS]; /* (number, alphabet) */
} GroupCodes;

/* The planes of a chunk's rests: each row's (shift, width), or one for all; their bytes. */
typedef struct {
    u8 *spans;
    int apart;
    i64 bytes;
} Planes;

static i64 take_lines(Lines *l, i64 lines, i64 length, Scratch *scratch) {
    TAKE(u8, symbols, lines * length);
    TAKE(u8, group_of, lines);
    TAKE(i64, places, lines);
    *l =
        (Lines){.lines = lines, .length = length, .symbols = symbols, .group_of = group_of, .places = places};
    return 0;
}

static void group_lines(Lines *l, i64 *sums, i64 groups) {
    l->groups = groups;
    find_groups(sums, l->lines, l->length, groups, l->group_of);
    find_places(l->group_of, l->lines, groups, l->places, l->sizes);
}

/* Walk over all lines in their order; if that is the order of symbols, as over a single line. */
static Walk walk_of(const Lines *l, int in_order) {
    static const i64 first = 0;
    if (in_order) return (Walk){l->symbols, &first, l->lines * l->length, 0, 0};
    return (Walk){l->symbols, l->places, l->length, 0, 0};
}

static i64 take_blocks(Blocks *b, const Planes *p, i64 n, i64 columns, Scratch *scratch) {
    i64 block = p->apart ? columns : min64(BLOCK, n);
    TAKE(u8, left, block + 64);
    *b = (Blocks){n, block, p->spans, p->apart ? 2 : 0, left};
    return 0;
}

/* ---- encoder --------------------------------------------------------------------------------------- */

/* As many of the wanted mantissa bits as leave every symbol a byte. With 8 exponent bits and none there always is a
   base. */
static Cut choose_cut(Extremes e, i64 mantissa, i64 wanted) {
    for (;; wanted--) {
        Cut cut = {(int)(mantissa - wanted), 0};
        cut.base = max64((i64)(e.least >> cut.low), 1) - 1;
        if ((i64)(e.greatest >> cut.low) - cut.base <= MOST_SYMBOL || wanted == 0) return cut;
    }
}

/* Find the spans of rests. used (rows,): what bits any word of a row has, `bits` with the sign. spans: rows × 2 of
   room. */
static Planes plan_planes(const u32 *used, i64 rows, i64 columns, i64 bits, Cut cut, int told_apart,
                          u8 *spans) {
    u32 together = 0;
    u8 all[2];
    for (i64 r = 0; r <= rows; r++) {
        u32 word = r < rows ? used[r] : together;
        u32 rest = (word & (((u32)1 << cut.low) - 1)) | word >> (bits - 1) << cut.low;
        set_span(rest, r < rows ? spans + 2 * r : all);
        together |= word;
    }
    int apart = choose_spans(spans, all, rows, columns, told_apart);
    return (Planes){spans, apart, plane_bytes(spans, apart, rows, columns)};
}

/* Count each group's symbols, and list those that occur. counts: set to (groups, alphabet), with 256 a group of room. */
static void count_symbols(const Lines *l, i64 largest, u32 *pairs, i64 *counts, GroupCodes *codes) {
    const u8 *run = l->symbols;
    memset(counts, 0, (size_t)(l->groups * SYMBOLS) * sizeof *counts);
    for (i64 g = 0; g < l->groups; g++) {
        i64 n = l->sizes[g] * l->length;
        count_run(run, n, largest + 1, counts + g * SYMBOLS, pairs);
        run += n;
    }
    codes->alphabet = 0;
    for (i64 s = 0; s <= largest; s++) {
        i64 found = 0;
        for (i64 g = 0; g < l->groups; g++) found |= counts[g * SYMBOLS + s];
        if (found) codes->values[codes->alphabet++] = (u16)s;
    }
    for (i64 g = 0; g < l->groups; g++)
        for (i64 a = 0; a < codes->alphabet; a++)
            counts[g * codes->alphabet + a] = counts[g * SYMBOLS + codes->values[a]];
}

/* Choose the codes; return the bits that they make of the symbols. room: (groups + 2) × 256. */
static i64 choose_codes(const Lines *l, const i64 *counts, i64 *room, GroupCodes *codes) {
    const i64 alphabet = codes->alphabet, elements = l->lines * l->length / l->groups;
    i64 *joined = room + 2 * SYMBOLS;
    u8 trial[MOST_GROUPS * SYMBOLS];
    /* Shorter for a few elements, since tables take time as well. */
    i64 wanted = max64(bit_length((u64)elements) - 3, bit_length((u64)alphabet) + 2);
    codes->longest = min64(wanted, LONGEST_IN_RUN);
    memcpy(joined, counts, (size_t)(l->groups * alphabet) * sizeof *counts);
    codes->number = cheapest_lengths(joined, l->groups, alphabet, codes->longest, GROUP_BITS * l->lines, room,
                                     trial, codes->lengths);
    return coded_bits(counts, l->groups, codes->lengths, codes->number, alphabet);
}

/* Join neighbouring groups, so that there are `number`. */
static i64 join_groups(Lines *l, i64 number, Scratch *scratch) {
    Lines joined;
    if (take_lines(&joined, l->lines, l->length, scratch)) return NO_MEMORY;
    for (i64 r = 0; r < l->lines; r++) joined.group_of[r] = (u8)(l->group_of[r] / (l->groups / number));
    joined.groups = number;
    find_places(joined.group_of, l->lines, number, joined.places, joined.sizes);
    for (i64 r = 0; r < l->lines; r++)
        memcpy(joined.symbols + joined.places[r] * l->length, l->symbols + l->places[r] * l->length,
               (size_t)l->length);
    *l = joined;
    return 0;
}

/* Write each group's symbols. */
static void encode_groups(const Lines *l, const GroupCodes *codes, u32 *pairs, RunStreams *s) {
    const i64 alphabet = codes->alphabet;
    const u8 *run = l->symbols;
    for (i64 g = 0; g < l->groups; g++) {
        u32 table[SYMBOLS] = {0};
        i64 n = l->sizes[g] * l->length;
        fill_codes(codes->lengths + g * alphabet, alphabet, codes->longest, codes->values, table);
        encode_run(s, run, n, table, codes->values[alphabet - 1] + 1, pairs);
        run += n;
    }
}

/* Put the side information; return the bytes. table: groups × 256 of room. */
static i64 put_side(u8 *out, const Lines *l, const GroupCodes *codes, const Planes *p, i64 rows,
                    const i64 *used, i64 *table) {
    const i64 number = codes->number, alphabet = codes->alphabet, span_rows = p->apart ? rows : 1;
    memset(out, 0, (size_t)most_side_bytes(l->lines, number * alphabet, alphabet, span_rows));
    i64 at = put_head(out, number, codes->longest, p->apart);
    at = put_bits(out, at, codes->mantissa_bits, MANTISSA_FIELD);
    at = put_bits(out, at, codes->base, BASE_FIELD);
    at = put_alphabet(out, at, codes->values, alphabet, 0);
    if (number > 1) at = put_levels(out, at, l->group_of, l->lines);
    at = put_sizes(out, at, used, STREAMS);
    at = put_spans(out, at, p->spans, span_rows);
    at = put_lengths(out, at, codes->lengths, number, alphabet, table);
    return (at + 7) / 8;
}

/* Encode the symbols; return the bytes, or 0 if they would be more than `most`, but for the side information. */
static i64 encode_lines(Lines *l, i64 largest, GroupCodes *codes, const Planes *p, i64 rows, i64 most,
                        u8 *out, Scratch *scratch) {
    TAKE(i64, counts, (2 * l->groups + 2) * SYMBOLS);
    TAKE(u32, pairs, (largest + 1) * SYMBOLS);
    i64 *room = counts + l->groups * SYMBOLS, used[STREAMS];
    count_symbols(l, largest, pairs, counts, codes);
    if (choose_codes(l, counts, room, codes) / 8 > most) return 0;
    if (codes->number < l->groups && join_groups(l, codes->number, scratch)) return NO_MEMORY;

    const i64 stream = stream_room(l->lines * l->length, l->groups, codes->longest);
    RunStreams s = {0};
    TAKE(u8, streams, STREAMS * stream);
    s.out = streams;
    for (int j = 0; j < STREAMS; j++) s.positions[j] = (u64)(j * stream);
    encode_groups(l, codes, pairs, &s);
    for (int j = 0; j < STREAMS; j++) used[j] = (i64)(8 * s.positions[j] + s.used[j]) - 8 * j * stream;

    i64 size = put_side(out, l, codes, p, rows, used, room);
    for (int j = 0; j < STREAMS; j++) {
        memcpy(out + size, streams + j * stream, (size_t)((used[j] + 7) / 8));
        size += (used[j] + 7) / 8;
    }
    return size;
}

/* Turn lines, which are rows, to columns in groups. */
static i64 turn_to_columns(Lines *l, i64 groups, Scratch *scratch) {
    Lines turned;
    const i64 rows = l->lines, columns = l->length;
    if (take_lines(&turned, columns, rows, scratch)) return NO_MEMORY;
    TAKE(i64, sums, columns);
    TAKE(u16, part, columns);
    sum_columns(l->symbols, rows, columns, part, sums);
    group_lines(&turned, sums, groups);
    gather_columns(l->symbols, rows, columns, turned.places, turned.symbols);
    *l = turned;
    return 0;
}

/* How a chunk of words (rows, columns), of so many bytes each, is coded: how many of the `mantissa` bits of its floats
   at most belong to symbols; in how many groups, a power of two, of rows or of columns; whether planes may tell rows
   apart. */
typedef struct {
    i64 rows, columns, itemsize, mantissa, wanted, groups;
    int by_columns, told_apart;
} FloatChunk;

/* Bytes that `encode_floats` needs to write to. */
INLINE i64 float_chunk_room(i64 rows, i64 columns, i64 itemsize) {
    return rows * columns * itemsize +
           most_side_bytes(max64(rows, columns), MOST_GROUPS * SYMBOLS, SYMBOLS, rows) + PADDING;
}

/* Encode a chunk into `out`, of `room` bytes: the coded symbols at its beginning, the planes at its end. sizes: set to
   the bytes of both. Without symbols, nothing is worth coding. */
static i64 encode_floats(const FloatKind *kind, const FloatChunk *chunk, const void *words, u8 *out, i64 room,
                         i64 *sizes, Scratch *scratch) {
    const i64 rows = chunk->rows, columns = chunk->columns, n = rows * columns, itemsize = chunk->itemsize;
    Lines l;
    Blocks blocks;
    GroupCodes codes;
    if (take_lines(&l, rows, columns, scratch)) return NO_MEMORY;
    TAKE(i64, sums, rows);
    TAKE(u32, used, rows);
    TAKE(u8, spans, 2 * rows);
    Extremes extremes = kind->look_at_rows(words, rows, columns, sums, used);
    Cut cut = choose_cut(extremes, chunk->mantissa, chunk->wanted);
    codes.mantissa_bits = chunk->mantissa - cut.low;
    codes.base = cut.base;
    group_lines(&l, sums, chunk->by_columns ? 1 : chunk->groups);
    Planes planes = plan_planes(used, rows, columns, 8 * itemsize, cut, chunk->told_apart, spans);
    if (take_blocks(&blocks, &planes, n, columns, scratch)) return NO_MEMORY;
    sizes[1] = max64(planes.bytes, PADDING);
    memset(out + room - PADDING, 0, PADDING);
    kind->split(words, cut, walk_of(&l, l.groups == 1), blocks, out + room - sizes[1]);

    if (chunk->by_columns && turn_to_columns(&l, chunk->groups, scratch)) return NO_MEMORY;
    i64 largest = (i64)(extremes.greatest >> cut.low);
    if (largest > 0) largest -= cut.base;
    sizes[0] = encode_lines(&l, largest, &codes, &planes, rows, n * itemsize - planes.bytes, out, scratch);
    return sizes[0];
}

ENTRY(groupfloats_encode) {
    FloatChunk chunk = {arg[0].shape[0], arg[0].shape[1], arg[0].itemsize, arg[1].i,
                        arg[2].i,        arg[3].i,        arg[4].i != 0,   arg[5].i != 0};
    const FloatKind *kind = float_kind(chunk.itemsize, chunk.mantissa);
    i64 groups = chunk.groups, wanted = chunk.wanted;
    if (!kind || arg[0].size == 0 || wanted < 0 || wanted > min64(chunk.mantissa, MOST_MANTISSA_BITS) ||
        groups < 1 || groups > MOST_GROUPS || (groups & (groups - 1)) ||
        arg[6].size < float_chunk_room(chunk.rows, chunk.columns, chunk.itemsize))
        return BAD_SIZES;
    return encode_floats(kind, &chunk, arg[0].data, arg[6].data, arg[6].size, arg[7].data, scratch);
}

/* ---- decoder --------------------------------------------------------------------------------------- */

/* Read the side information of a chunk, whose lines are n floats, and check it against its bytes. Set each line's
   group and place, and `streams` to where each begins and ends, in bits; return the byte where the planes begin, or
   what is wrong. planes: room for the spans of `rows`. */
static i64 get_side(Bytes in, i64 rows, i64 mantissa, Lines *l, GroupCodes *codes, Planes *planes,
                    u64 *positions, u64 *stops, Scratch *scratch) {
    const i64 n = l->lines * l->length;
    i64 used[STREAMS];
    i64 at = get_head(in, &codes->number, &codes->longest, &planes->apart);
    codes->mantissa_bits = get_bits(in, at, MANTISSA_FIELD);
    codes->base = get_bits(in, at + MANTISSA_FIELD, BASE_FIELD);
    at = get_alphabet(in, at + MANTISSA_FIELD + BASE_FIELD, min64(SYMBOLS, n), codes->values,
                      &codes->alphabet);
    if (at < 0 || codes->values[codes->alphabet - 1] > MOST_SYMBOL || codes->number > MOST_GROUPS ||
        codes->mantissa_bits > min64(mantissa, MOST_MANTISSA_BITS) || codes->longest == 0 ||
        codes->longest > LONGEST_IN_RUN)
        return DAMAGED_SIDE;
    memset(l->group_of, 0, (size_t)l->lines);
    if (codes->number > 1 && (at = get_levels(in, at, l->group_of, l->lines)) < 0) return DAMAGED_SIDE;
    at = get_sizes(in, at, used, STREAMS);
    at = get_spans(in, at, planes->spans, planes->apart ? rows : 1, mantissa - codes->mantissa_bits + 1);
    if (at < 0) return DAMAGED_SIDE;
    TAKE(i64, table, codes->number * codes->alphabet);
    at = get_lengths(in, at, codes->longest, codes->lengths, codes->number, codes->alphabet, table);
    if (at < 0) return DAMAGED_SIDE;
    if (!valid_lengths(codes->lengths, codes->number, codes->alphabet, codes->longest)) return NO_PREFIX_CODE;

    i64 begin = (at + 7) / 8;
    for (int j = 0; j < STREAMS; j++) {
        positions[j] = 8 * (u64)begin;
        stops[j] = positions[j] + (u64)used[j];
        begin += (used[j] + 7) / 8;
    }
    planes->bytes = plane_bytes(planes->spans, planes->apart, rows, n / rows);
    if (begin + max64(planes->bytes, PADDING) != in.size) return WRONG_SIZE;
    for (i64 r = 0; r < l->lines; r++) l->group_of[r] = (u8)min64(l->group_of[r], codes->number - 1);
    l->groups = codes->number;
    find_places(l->group_of, l->lines, l->groups, l->places, l->sizes);
    return begin;
}

/* Decode the symbols of all groups; return 0, or what is wrong. */
static i64 decode_groups(Bytes in, const Lines *l, const GroupCodes *codes, u64 *positions,
                         const u64 *stops) {
    RunCode code;
    u8 *run = l->symbols;
    memset(code.lengths, 0, sizeof code.lengths);
    for (i64 g = 0; g < l->groups; g++) {
        i64 n = l->sizes[g] * l->length;
        fill_run_code(&code, codes->lengths + g * codes->alphabet, codes->alphabet, codes->longest,
                      codes->values, n);
        decode_run(in, positions, &code, run, n);
        run += n;
    }
    return memcmp(positions, stops, STREAMS * sizeof *stops) ? WRONG_END : 0;
}

/* Decode a chunk, at least 8 bytes, into words (rows, columns); return 0, or what is wrong. Nothing is read or written
   out of bounds, whatever the bytes. */
static i64 decode_floats(const FloatKind *kind, Bytes in, i64 mantissa, int by_columns, void *words, i64 rows,
                         i64 columns, Scratch *scratch) {
    u64 positions[STREAMS], stops[STREAMS];
    Lines l;
    Blocks blocks;
    GroupCodes codes;
    if (take_lines(&l, by_columns ? columns : rows, by_columns ? rows : columns, scratch)) return NO_MEMORY;
    TAKE(u8, spans, 2 * rows);
    Planes planes = {spans, 0, 0};
    i64 begin = get_side(in, rows, mantissa, &l, &codes, &planes, positions, stops, scratch);
    if (begin < 0) return begin;
    i64 wrong = decode_groups(in, &l, &codes, positions, stops);
    if (wrong) return wrong;
    if (take_blocks(&blocks, &planes, rows * columns, columns, scratch)) return NO_MEMORY;
    if (by_columns) {
        TAKE(u8, matrix, rows * columns);
        scatter_columns(l.symbols, rows, columns, l.places, matrix);
        l.symbols = matrix;
    }
    Cut cut = {(int)(mantissa - codes.mantissa_bits), codes.base};
    kind->merge(in.data + begin, cut, walk_of(&l, by_columns || l.groups == 1), blocks, words);
    return 0;
}

ENTRY(groupfloats_decode) {
    const FloatKind *kind = float_kind(arg[3].itemsize, arg[1].i);
    Bytes in = {arg[0].data, arg[0].size};
    if (!kind || arg[3].size == 0 || in.size < 8) return BAD_SIZES;
    return decode_floats(kind, in, arg[1].i, arg[2].i != 0, arg[3].data, arg[3].shape[0], arg[3].shape[1],
                         scratch);
}
