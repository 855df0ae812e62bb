/* Integer frequencies for tANS: how many of a table's states each symbol of each context gets. */
#ifndef TC_FREQUENCIES_H
#define TC_FREQUENCIES_H
#include "frequency_tables.h"
#include "huffman_codes.h"

enum { COST_FRACTION = 20 }; /* costs are counted in units of 2**-20 bit */
enum { ROW_LEVEL_BITS = 3 }; /* what a row's level costs, about */
enum { SLOT = 92 }; /* what a state more costs a full table: 1.44 bit each time it is gone through, in 1/64 */
enum { NO_ESCAPE = 1 << 16 }; /* what stands for an escape symbol where there is none */
enum { STORED_ENTRY = 192 };  /* what an entry of the stored table costs, in 1/64 bit */

/* Counts (contexts, size) of some symbols, ascending. */
typedef struct {
    i64 contexts, size, *counts;
    u16 *symbols;
} Counted;

/* ---- frequencies from counts ----------------------------------------------------------------------- */

/* Which of n keys is the greatest, the first of equal ones, while keys change: node i of a binary tree holds the
   better of nodes 2 i and 2 i + 1, leaf `leaves` + i stands for key i. */
typedef struct {
    i64 leaves, *keys;
    u16 *winners;
} Tournament;

INLINE void play(Tournament *t, i64 node) {
    u16 left = t->winners[2 * node], right = t->winners[2 * node + 1];
    t->winners[node] = t->keys[right] > t->keys[left] ? right : left;
}
static void play_all(Tournament *t, i64 n) {
    for (t->leaves = 1; t->leaves < n; t->leaves *= 2) {}
    for (i64 i = 0; i < t->leaves; i++) t->winners[t->leaves + i] = (u16)min64(i, n - 1);
    for (i64 node = t->leaves - 1; node > 0; node--) play(t, node);
}
static void change_key(Tournament *t, i64 i, i64 key) {
    t->keys[i] = key;
    for (i64 node = (t->leaves + i) / 2; node > 0; node /= 2) play(t, node);
}
INLINE i64 winner(const Tournament *t) { return t->winners[1]; }

typedef struct {
    const i32 *log2; /* of 0 … 2**states, rising */
    i64 total;       /* 2**states */
    Tournament gains, losses;
} Normalizer;

/* What a frequency more saves, and what one less costs, as a key: the less, the greater. */
INLINE i64 gain(const Normalizer *z, i64 count, i64 chosen) {
    return chosen > 0 && chosen < z->total ? count * (z->log2[chosen + 1] - z->log2[chosen]) : -1;
}
INLINE i64 loss(const Normalizer *z, i64 count, i64 chosen) {
    return chosen > 1 ? -count * (z->log2[chosen] - z->log2[chosen - 1]) : -INT64_MAX;
}
static void start_gains(Normalizer *z, const i64 *counts, const i64 *chosen, i64 n) {
    for (i64 a = 0; a < n; a++) z->gains.keys[a] = gain(z, counts[a], chosen[a]);
    play_all(&z->gains, n);
}
static void start_losses(Normalizer *z, const i64 *counts, const i64 *chosen, i64 n) {
    for (i64 a = 0; a < n; a++) z->losses.keys[a] = loss(z, counts[a], chosen[a]);
    play_all(&z->losses, n);
}

/* Whether no exchange of a state saves anything, seen at a glance. */
static int is_settled(const Normalizer *z, const i64 *counts, const i64 *chosen, i64 n) {
    i64 most = -1, least = -INT64_MAX;
    for (i64 a = 0; a < n; a++) {
        most = max64(most, gain(z, counts[a], chosen[a]));
        least = max64(least, loss(z, counts[a], chosen[a]));
    }
    return most <= -least;
}

/* Exchange states as long as that saves something: costs are convex, but for rounding. */
static void exchange(Normalizer *z, const i64 *counts, i64 *chosen, i64 n) {
    if (is_settled(z, counts, chosen, n)) return;
    start_gains(z, counts, chosen, n);
    start_losses(z, counts, chosen, n);
    for (;;) {
        i64 up = winner(&z->gains), down = winner(&z->losses);
        if (z->gains.keys[up] <= -z->losses.keys[down] || up == down) return;
        chosen[up]++;
        chosen[down]--;
        for (int k = 0; k < 2; k++) {
            i64 changed = k ? down : up;
            change_key(&z->gains, changed, gain(z, counts[changed], chosen[changed]));
            change_key(&z->losses, changed, loss(z, counts[changed], chosen[changed]));
        }
    }
}

/* Set chosen (n,) to frequencies that add up to 2**states, at least 1 for each symbol that occurs, such that no other
   choice is cheaper; return what the symbols cost then. Where nothing occurs all are 0. */
static i64 normalize_row(Normalizer *z, const i64 *counts, i64 n, i64 *chosen) {
    i64 everything = 0, given = 0, cost = 0;
    for (i64 a = 0; a < n; a++) everything += counts[a];
    for (i64 a = 0; a < n; a++) {
        chosen[a] = counts[a] ? max64(1, (counts[a] * z->total + everything / 2) / everything) : 0;
        given += chosen[a];
    }
    if (!given) return 0;
    if (given < z->total) start_gains(z, counts, chosen, n);
    for (; given < z->total; given++) {
        i64 up = winner(&z->gains);
        chosen[up]++;
        change_key(&z->gains, up, gain(z, counts[up], chosen[up]));
    }
    if (given > z->total) start_losses(z, counts, chosen, n);
    for (; given > z->total; given--) {
        i64 down = winner(&z->losses);
        chosen[down]--;
        change_key(&z->losses, down, loss(z, counts[down], chosen[down]));
    }
    exchange(z, counts, chosen, n);
    for (i64 a = 0; a < n; a++)
        if (counts[a]) cost += counts[a] * (z->log2[z->total] - z->log2[chosen[a]]);
    return cost;
}

/* ---- escaped symbols ------------------------------------------------------------------------------- */

/* Leave out the symbols that do not occur. */
static void drop_unused(Counted *c, u16 *columns) {
    i64 used = 0;
    for (i64 a = 0; a < c->size; a++) {
        i64 total = 0;
        for (i64 k = 0; k < c->contexts; k++) total += c->counts[k * c->size + a];
        if (total) columns[used++] = (u16)a;
    }
    for (i64 k = 0; k < c->contexts; k++)
        for (i64 j = 0; j < used; j++) c->counts[k * used + j] = c->counts[k * c->size + columns[j]];
    for (i64 j = 0; j < used; j++) c->symbols[j] = c->symbols[columns[j]];
    c->size = used;
}

static i64 rarest(const Counted *c) {
    i64 found = 0, least = INT64_MAX;
    for (i64 a = 0; a < c->size; a++) {
        i64 total = 0;
        for (i64 k = 0; k < c->contexts; k++) total += c->counts[k * c->size + a];
        if (total < least) found = a, least = total;
    }
    return found;
}

/* Set kept (n,) to the counts (n,) without those of rare symbols, and return these counts' sum. Escaping a symbol
   costs its bits each time, keeping it an entry and a state that is too many; at most `largest` are kept. */
static i64 keep_frequent(const i64 *counts, i64 n, i64 states, i64 bits, i64 largest, i64 *sorted,
                         i64 *kept) {
    i64 total = 0, floor = 1, at_floor = n, escaped = 0;
    for (i64 a = 0; a < n; a++) total += counts[a];
    i64 most = (SLOT * total + ((i64)STORED_ENTRY << states)) >> states;
    if (n > largest) { /* more than one symbol may have the least count of those kept; the first ones are */
        memcpy(sorted, counts, (size_t)n * sizeof *sorted);
        sort_ascending(sorted, n);
        floor = sorted[n - largest];
        for (at_floor = largest; at_floor > 0 && sorted[n - at_floor] == floor;) at_floor--;
        at_floor = largest - at_floor;
    }
    for (i64 a = 0; a < n; a++) {
        int rare = counts[a] * (64 * bits + SLOT) < most || counts[a] < floor;
        if (counts[a] == floor && at_floor-- <= 0) rare = 1;
        kept[a] = rare ? 0 : counts[a];
        escaped += counts[a] - kept[a];
    }
    return escaped;
}

/* Make of `all` what is left where rare symbols are replaced by one, the rarest of all; that one is escaped, too.
   Returns how many elements have such a symbol. */
static i64 escape_rare(const Counted *all, i64 states, i64 bits, i64 *sorted, u16 *columns, Counted *kept,
                       i64 *escape) {
    i64 n = all->size, chosen = rarest(all), any = 0, escapes = 0;
    for (i64 k = 0; k < all->contexts; k++) {
        i64 *row = kept->counts + k * n;
        i64 escaped =
            keep_frequent(all->counts + k * n, n, states, bits, (i64)1 << (states - 1), sorted, row);
        any |= escaped;
        row[chosen] += escaped;
        escapes += row[chosen];
    }
    if (!any || n == 1) return 0;
    kept->contexts = all->contexts;
    kept->size = n;
    memcpy(kept->symbols, all->symbols, (size_t)n * sizeof *kept->symbols);
    *escape = all->symbols[chosen];
    drop_unused(kept, columns);
    return escapes;
}

/* ---- choice ---------------------------------------------------------------------------------------- */

typedef struct {
    Normalizer normalizer;
    i64 *trial;
    i64 cost;     /* of the best choice so far; -1 if there is none */
    Counted best; /* its counts are the frequencies */
    i64 escape, escapes, table_bits;
} Choice;

/* Take the frequencies of `c` if they cost less than the best so far, and return whether they do. */
static int consider(Choice *choice, const Counted *c, i64 cost, i64 escape, i64 escapes) {
    i64 entries = c->contexts * c->size;
    cost += entries << COST_FRACTION; /* a bit each, at least */
    for (i64 k = 0; k < entries; k += c->size) {
        cost += normalize_row(&choice->normalizer, c->counts + k, c->size, choice->trial + k);
        if (choice->cost >= 0 && cost >= choice->cost) return 0;
    }
    i64 bits = table_bits(choice->trial, c->contexts, c->size);
    cost += (bits - entries) << COST_FRACTION;
    if (choice->cost >= 0 && cost >= choice->cost) return 0;
    choice->cost = cost;
    choice->best.contexts = c->contexts;
    choice->best.size = c->size;
    choice->escape = escape;
    choice->escapes = escapes;
    choice->table_bits = bits;
    memcpy(choice->best.counts, choice->trial, (size_t)entries * sizeof *choice->trial);
    memcpy(choice->best.symbols, c->symbols, (size_t)c->size * sizeof *c->symbols);
    return 1;
}

static void join_contexts(Counted *c) {
    c->contexts /= 2;
    for (i64 k = 0; k < c->contexts; k++)
        for (i64 a = 0; a < c->size; a++)
            c->counts[k * c->size + a] =
                c->counts[2 * k * c->size + a] + c->counts[(2 * k + 1) * c->size + a];
}

/* Find the frequencies, of all contexts or of contexts joined two by two, that cost least. counts (contexts, symbols)
   are overwritten; log2 are those of 0 … 2**states in 2**-20 bit; of `without` contexts or fewer, no levels of `rows`
   need to be stored. */
static i64 choose_frequencies(i64 *counts, i64 contexts, i64 symbols, i64 states, const i32 *log2, i64 rows,
                              i64 without, Choice *choice, Scratch *scratch) {
    i64 bits = bit_length((u64)symbols - 1);
    TAKE(u16, names, 3 * symbols);
    TAKE(u16, columns, symbols);
    for (i64 a = 0; a < symbols; a++) names[a] = (u16)a;
    Counted all = {contexts, symbols, counts, names};
    drop_unused(&all, columns);
    i64 size = all.size, room = contexts * size;
    TAKE(i64, tables, 3 * room);
    TAKE(i64, keys, 3 * size);
    TAKE(u16, winners, 8 * size);
    Counted kept = {0, 0, tables, names + symbols};
    Normalizer normalizer = {
        log2, (i64)1 << states, {0, keys, winners}, {0, keys + size, winners + 4 * size}};
    *choice =
        (Choice){normalizer, tables + room, -1, {0, 0, tables + 2 * room, names + 2 * symbols}, 0, 0, 0};
    for (int falling = 1;; join_contexts(&all)) {
        /* The last ones need no levels, and so may be cheaper yet. */
        if (falling || all.contexts <= without) {
            i64 levels = all.contexts > without ? (rows * ROW_LEVEL_BITS) << COST_FRACTION : 0, escape;
            falling = 0;
            if (size <= (i64)1 << (states - 1)) falling |= consider(choice, &all, levels, NO_ESCAPE, 0);
            i64 escapes = escape_rare(&all, states, bits, keys + 2 * size, columns, &kept, &escape);
            if (escapes) {
                i64 apart = (escapes * bits) << COST_FRACTION;
                falling |= consider(choice, &kept, levels + apart, escape, escapes);
            }
            falling |= choice->cost < 0;
        }
        if (all.contexts == 1) return 0;
    }
}
#endif
