/* Contexts from row and column scale: levels of rows and columns, and the context of each sum of two levels. Everything
   is integer arithmetic, so that equal inputs give equal contexts on every machine. */
#ifndef TC_CONTEXTS_H
#define TC_CONTEXTS_H
#include "context_rows.h"
#include "native.h"

enum { LEVELS = 16, LEVEL_SUMS = 2 * LEVELS - 1 };
enum { LEVEL_FRACTION = 6 };           /* levels are cut from means in units of 1/64 */
enum { MOST_RANKED = 512, TAIL = 50 }; /* a fiftieth of so many lies beyond the outermost levels */
enum { FLUSHED_ROWS = 1 << 16, PART_OF_ROW = 1 << 15 }; /* sums of so many words of 16 bits fit 32 bits */

/* ---- sums of magnitudes ------------------------------------------------------------------------------ */

/* Of each row and column of a matrix; columns add up in 32 bits first, in more lanes at a time. */
typedef struct {
    i64 rows, columns, pending; /* rows in `part` */
    i64 *by_row, *by_column;
    u32 *part;
} LevelSums;

static void flush_sums(LevelSums *s) {
    for (i64 c = 0; c < s->columns; c++) s->by_column[c] += s->part[c];
    memset(s->part, 0, (size_t)s->columns * sizeof *s->part);
    s->pending = 0;
}

static i64 new_sums(LevelSums *s, i64 rows, i64 columns, Scratch *scratch) {
    TAKE(i64, by_row, rows);
    TAKE(i64, by_column, columns);
    TAKE(u32, part, columns);
    *s = (LevelSums){rows, columns, 0, by_row, by_column, part};
    memset(by_row, 0, (size_t)rows * sizeof *by_row);
    memset(by_column, 0, (size_t)columns * sizeof *by_column);
    memset(part, 0, (size_t)columns * sizeof *part);
    return 0;
}

#define SUM_ROW(NAME, T)                                                                     \
    static i64 NAME(const T *restrict row, i64 columns, u32 *restrict part) {                \
        i64 total = 0;                                                                       \
        for (i64 begin = 0; begin < columns; begin += PART_OF_ROW) {                         \
            u32 sum = 0;                                                                     \
            for (i64 c = begin, stop = min64(begin + PART_OF_ROW, columns); c < stop; c++) { \
                u32 magnitude = (u32)(row[c] < 0 ? -(i32)row[c] : (i32)row[c]);              \
                sum += magnitude;                                                            \
                part[c] += magnitude;                                                        \
            }                                                                                \
            total += sum;                                                                    \
        }                                                                                    \
        return total;                                                                        \
    }
SUM_ROW(sum_row_u8, u8)
SUM_ROW(sum_row_i8, i8)
SUM_ROW(sum_row_u16, u16)
SUM_ROW(sum_row_i16, i16)
#undef SUM_ROW

/* Add up `n` words, of 1 or 2 bytes, of row r from column c on. */
static void sum_words(LevelSums *s, const void *words, i64 itemsize, int is_signed, i64 r, i64 c, i64 n) {
    u32 *part = s->part + c;
    if (c == 0) {
        if (s->pending == FLUSHED_ROWS) flush_sums(s);
        s->pending++;
    }
    if (itemsize == 1) s->by_row[r] += is_signed ? sum_row_i8(words, n, part) : sum_row_u8(words, n, part);
    else s->by_row[r] += is_signed ? sum_row_i16(words, n, part) : sum_row_u16(words, n, part);
}

/* ---- levels ------------------------------------------------------------------------------------------ */

/* log2 of a positive integer below 2^43 in units of 1/64. */
static i64 fixed_log2(i64 value) {
    i64 result = bit_length((u64)value) - 1, mantissa = (value << 20) >> result; /* in [2^20, 2^21) */
    for (int k = 0; k < LEVEL_FRACTION; k++) { /* square, and see whether it passes 2 */
        mantissa = (mantissa * mantissa) >> 20;
        i64 bit = mantissa >> 21;
        mantissa >>= bit;
        result = (result << 1) | bit;
    }
    return result;
}

/* Turn sums of `count` magnitudes into means, or log2 of means, in units of 1/64. */
static void to_means(i64 *sums, i64 n, i64 count, int logarithms) {
    for (i64 i = 0; i < n; i++)
        sums[i] = logarithms ? fixed_log2((sums[i] << 8) / count + 1) : (sums[i] << LEVEL_FRACTION) / count;
}

/* The value of so low a rank, counted from 0, among values times `sign`. */
static i64 least_of_rank(const i64 *values, i64 n, i64 step, i64 rank, i64 sign) {
    i64 least[MOST_RANKED / TAIL + 1];
    for (i64 j = 0; j < LENGTH(least); j++) least[j] = INT64_MAX;
    for (i64 i = 0; i < n; i += step) {
        i64 value = sign * values[i], j = rank;
        if (value >= least[rank]) continue;
        for (; j > 0 && least[j - 1] > value; j--) least[j] = least[j - 1];
        least[j] = value;
    }
    return sign * least[rank];
}

/* The values that about a fiftieth of all lies below and above. */
static void level_edges(const i64 *values, i64 n, i64 *low, i64 *high) {
    i64 step = (n + MOST_RANKED - 1) / MOST_RANKED, ranked = (n + step - 1) / step;
    *low = least_of_rank(values, n, step, ranked / TAIL, 1);
    *high = least_of_rank(values, n, step, ranked / TAIL, -1);
}

/* Set `out` to the levels of `values`: from `low` to `high`, centred if they leave room. */
static void cut_levels(const i64 *values, i64 n, i64 low, i64 high, i64 levels, i64 width, u8 *out) {
    i64 first = low - ((levels * width - (high - low + 1)) >> 1);
    for (i64 i = 0; i < n; i++) out[i] = (u8)min64(max64((values[i] - first) / width, 0), levels - 1);
}

/* Set the level of each row and column of summed magnitudes, and return the width of a level. With a `width` above 0,
   it and the columns' levels are given. logarithms: a level is a step of log2 of the mean, not of the mean. */
static i64 find_levels(LevelSums *s, int logarithms, i64 width, u8 *row_levels, u8 *column_levels) {
    i64 row_low, row_high, low, high;
    to_means(s->by_row, s->rows, s->columns, logarithms);
    level_edges(s->by_row, s->rows, &row_low, &row_high);
    if (width <= 0) {
        flush_sums(s);
        to_means(s->by_column, s->columns, s->rows, logarithms);
        level_edges(s->by_column, s->columns, &low, &high);
        width = max64(high - low, row_high - row_low) / (LEVELS - 1) + 1;
        cut_levels(s->by_column, s->columns, low, high, LEVELS, width, column_levels);
    }
    cut_levels(s->by_row, s->rows, row_low, row_high, LEVELS, width, row_levels);
    return width;
}

/* ---- steps of sums of two levels ----------------------------------------------------------------------- */

/* Contexts are equal steps over `span` sums from the lowest on. */
typedef struct {
    i64 lowest, span;
} Steps;

/* From the 2nd to the 98th percentile of the sums. */
static Steps find_steps(const u8 *row_levels, i64 rows, const u8 *column_levels, i64 columns) {
    i64 by_row[LEVELS] = {0}, by_column[LEVELS] = {0}, counts[LEVEL_SUMS] = {0}, tail = rows * columns / TAIL;
    for (i64 r = 0; r < rows; r++) by_row[row_levels[r] & 15]++;
    for (i64 c = 0; c < columns; c++) by_column[column_levels[c] & 15]++;
    for (int i = 0; i < LEVELS; i++)
        for (int j = 0; j < LEVELS; j++) counts[i + j] += by_row[i] * by_column[j];
    i64 low = 0, high = LEVEL_SUMS - 1;
    for (i64 below = counts[0]; below <= tail && low < LEVEL_SUMS - 1;) below += counts[++low];
    for (i64 above = counts[high]; above <= tail && high > 0;) above += counts[--high];
    return (Steps){low, max64(high - low + 1, 1)};
}

static void fill_steps(Steps steps, i64 contexts, u8 *context_of) {
    for (i64 i = 0; i < LEVEL_SUMS; i++)
        context_of[i] = (u8)min64(max64((i - steps.lowest) * contexts / steps.span, 0), contexts - 1);
}

/* Set levels, as `find_levels` does, and the context of each sum of two, if it is asked for, of a matrix of words of 1
   or 2 bytes; return the width of a level. */
static i64 learn_contexts(const Arg *matrix, int logarithms, i64 width, i64 contexts, u8 *row_levels,
                          u8 *column_levels, u8 *context_of, Scratch *scratch) {
    LevelSums sums;
    i64 rows = matrix->shape[0], columns = matrix->shape[1], row = columns * matrix->itemsize;
    if (new_sums(&sums, rows, columns, scratch)) return NO_MEMORY;
    for (i64 r = 0; r < rows; r++)
        sum_words(&sums, (const u8 *)matrix->data + r * row, matrix->itemsize, logarithms, r, 0, columns);
    width = find_levels(&sums, logarithms, width, row_levels, column_levels);
    if (context_of) fill_steps(find_steps(row_levels, rows, column_levels, columns), contexts, context_of);
    return width;
}

/* ---- contexts of elements ------------------------------------------------------------------------------ */

/* A walk through the contexts << shift of a chunk's elements; `value_of` has to outlive it. */
static i64 new_context_rows(ContextRows *c, u16 value_of[LEVEL_SUMS], const u8 *row_levels, i64 rows,
                            const u8 *column_levels, i64 columns, const u8 *context_of, i64 shift,
                            Scratch *scratch) {
    *c = (ContextRows){row_levels, column_levels, value_of, rows, columns, NULL, {NULL}, 0, 0};
    TAKE(u16, patterns, pattern_room(c));
    c->patterns = patterns;
    for (int i = 0; i < LEVEL_SUMS; i++) value_of[i] = (u16)(context_of[i] << shift);
    return 0;
}

/* out[i] = bases[i] | (symbols[i] - least), of words of 1 or 2 bytes. */
static void put_bases(const u16 *restrict bases, const void *symbols, i64 itemsize, u16 least,
                      u16 *restrict out, i64 n) {
    const u8 *restrict narrow = symbols;
    const u16 *restrict wide = symbols;
    if (itemsize == 1)
        for (i64 i = 0; i < n; i++) out[i] = bases[i] | (u16)(narrow[i] - least);
    else
        for (i64 i = 0; i < n; i++) out[i] = bases[i] | (u16)(wide[i] - least);
}

/* ---- histograms ---------------------------------------------------------------------------------------- */

/* Count words of 1 or 2 bytes in counters (2, size): two tables in turn, because an increment of a counter that was
   just written has to wait; more would not stay in the nearest cache. */
static void count_words(const void *words, i64 itemsize, i64 n, u32 *counters, i64 size) {
    const u8 *narrow = words;
    const u16 *wide = words;
    u32 *others = counters + size;
    i64 i = 0;
    if (itemsize == 1)
#pragma GCC unroll 4
        for (; i + 2 <= n; i += 2) counters[narrow[i]]++, others[narrow[i + 1]]++;
    else
#pragma GCC unroll 4
        for (; i + 2 <= n; i += 2) counters[wide[i]]++, others[wide[i + 1]]++;
    if (i < n) counters[itemsize == 1 ? narrow[i] : wide[i]]++;
}
#endif
