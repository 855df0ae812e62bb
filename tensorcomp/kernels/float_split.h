/* Floats as a byte that is worth coding and the bits that are not.

   The byte of a float comes from its exponent and top mantissa bits v: 0 for v = 0, else v - base. So zeros, far below
   all other values, need no room of their own. What is left, the rest, is the lower bits with the sign above them; it
   goes to bit planes. */
#ifndef TC_FLOAT_SPLIT_H
#define TC_FLOAT_SPLIT_H
#include "bit_planes.h"

enum { SUMMED = 1 << 16 };

/* Where words are cut: so many bits are below the symbol, and `base` is below symbols above 0. */
typedef struct {
    int low;
    i64 base;
} Cut;

/* What words have without their signs: the least above 0 (0 if there is none), and the greatest. */
typedef struct {
    u64 least, greatest;
} Extremes;

/* Bytes (n,) in lines of `length`, line r of them at places[r]; and where in them a walk is. */
typedef struct {
    u8 *symbols;
    const i64 *places;
    i64 length, line, column;
} Walk;

/* Go on in the current line, by `most` bytes or to its end; set how many, and return where they are. */
INLINE u8 *walk(Walk *w, i64 most, i64 *count) {
    u8 *at = w->symbols + w->places[w->line] * w->length + w->column;
    *count = min64(w->length - w->column, most);
    w->column += *count;
    if (w->column == w->length) {
        w->column = 0;
        w->line++;
    }
    return at;
}

/* Words (n,) and the planes of their rests, in blocks that fit the nearest cache: their length, and how far in `spans`
   is the (shift, width) of the next one. */
typedef struct {
    i64 n, block;
    const u8 *spans;
    int span_step;
    u8 *left; /* block + 64 bytes of room */
} Blocks;

/* The same behind so many words. */
INLINE Parts skip(Parts p, i64 count) {
    for (int k = 0; k < p.count; k++) p.bytes[k] += count;
    return p;
}

#define W u8
#define SUM u32
#define NAME(x) x##_8
#include "float_split.inc"
#define W u16
#define SUM u32
#define NAME(x) x##_16
#include "float_split.inc"
#define W u32
#define SUM u64
#define NAME(x) x##_32
#include "float_split.inc"

/* The functions for words of one width. */
typedef struct {
    Extremes (*look_at_rows)(const void *words, i64 rows, i64 columns, i64 *sums, u32 *used);
    void (*split)(const void *words, Cut cut, Walk symbols, Blocks blocks, u8 *planes);
    void (*merge)(const u8 *planes, Cut cut, Walk symbols, Blocks blocks, void *words);
} FloatKind;

/* NULL for what is no such float. */
static const FloatKind *float_kind(i64 itemsize, i64 mantissa) {
#define KIND(w) \
    { look_at_rows_##w, split_blocks_##w, merge_blocks_##w }
    static const FloatKind kinds[] = {KIND(8), KIND(16), KIND(32)};
#undef KIND
    if (mantissa < 0 || mantissa > 8 * itemsize - 2) return NULL;
    return itemsize <= 4 ? &kinds[itemsize / 2] : NULL;
}
#endif
