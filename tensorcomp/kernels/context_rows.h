/* The contexts of a matrix's elements, in their order: a row's pattern follows from its level, and is made once. */
#ifndef TC_CONTEXT_ROWS_H
#define TC_CONTEXT_ROWS_H
#include "native.h"

enum { CONTEXT_LEVELS = 16 };

typedef struct {
    const u8 *row_levels, *column_levels; /* of 4 bits; NULL where there is a single context */
    const u16 *value_of;                  /* of each sum of two levels */
    i64 rows, columns;
    u16 *patterns; /* room for `pattern_room` */
    const u16 *pattern_of[CONTEXT_LEVELS];
    i64 row, column;
} ContextRows;

static i64 pattern_room(const ContextRows *c) { return min64(c->rows, CONTEXT_LEVELS) * c->columns; }

static const u16 *row_pattern(ContextRows *c, u8 level) {
    if (!c->pattern_of[level]) {
        for (i64 i = 0; i < c->columns; i++) c->patterns[i] = c->value_of[level + (c->column_levels[i] & 15)];
        c->pattern_of[level] = c->patterns;
        c->patterns += c->columns;
    }
    return c->pattern_of[level];
}

/* Set `out` to the values of the next `count` elements. */
static void next_bases(ContextRows *c, i64 count, u16 *out) {
    while (count > 0) {
        i64 some = min64(count, c->columns - c->column);
        const u16 *pattern = row_pattern(c, c->row_levels[c->row] & 15);
        memcpy(out, pattern + c->column, (size_t)some * sizeof *out);
        out += some;
        count -= some;
        c->column += some;
        if (c->column == c->columns) {
            c->column = 0;
            c->row++;
        }
    }
}
#endif
