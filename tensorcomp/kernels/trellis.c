/* Trellis-coded quantization: the best path by the Viterbi algorithm, and what codes stand for.

   Element i belongs to machine i % 64, so that each loop over machines runs in vector registers. Everything that
   decides a code is integer arithmetic on positions: elements in 1/32,768 step. Modulo two steps, which is their low
   16 bits, a position tells how far the nearest points of the four subsets are. */
#include <math.h>

#include "elements.h"
#include "machines.h"

enum { POSITION_STEP = 1 << 15, LARGEST_POSITION = 32766 * POSITION_STEP };
enum { COST_BITS = 19 }; /* a cost is a squared distance of at most a step, shifted by this: 11 bits */
enum {
    UNREACHED = 10241
}; /* above five branches' costs: by then a path from state 0 has reached every state */
enum { BETWEEN = 8 }; /* rows between two looks at a metric, so that none leaves 16 bits */
enum { MOST_STATES = 32 };

/* Elements, float32 or float64, in units of a small part of a step. */
typedef struct {
    const u8 *data;
    i64 size, itemsize;
    double scale;
} Elements;

#define ELEMENTS(F, magnitude, rounded)                                                            \
    static int within_##F(const F *restrict values, F scale, i64 n) {                              \
        int beyond = 0;                                                                            \
        for (i64 i = 0; i < n; i++) beyond |= !(magnitude(values[i] * scale) <= LARGEST_POSITION); \
        return !beyond;                                                                            \
    }                                                                                              \
    static void place_##F(const F *restrict values, F scale, i32 *restrict positions) {            \
        for (int l = 0; l < MACHINES; l++) positions[l] = (i32)rounded(values[l] * scale);         \
    }
ELEMENTS(float, fabsf, rintf)
ELEMENTS(double, fabs, rint)
#undef ELEMENTS

/* Whether no element is NaN or farther away than a position can tell. */
static int all_within(const Elements *e) {
    return e->itemsize == 4 ? within_float((const float *)e->data, (float)e->scale, e->size)
                            : within_double((const double *)e->data, e->scale, e->size);
}

/* Set positions (64,) of a row of elements, zeros behind the last one. */
static void place_row(const Elements *e, i64 row, i32 *positions) {
    i64 left = e->size - row * MACHINES;
    const void *from = e->data + row * MACHINES * e->itemsize;
    double padded[MACHINES];
    if (left < MACHINES) {
        memset(padded, 0, sizeof padded);
        from = memcpy(padded, from, (size_t)(left * e->itemsize));
    }
    if (e->itemsize == 4) place_float(from, (float)e->scale, positions);
    else place_double(from, e->scale, positions);
}

/* ---- search ---------------------------------------------------------------------------------------- */

/* Bytes that hold a bit for each state. */
INLINE int decision_bytes(Machine m) { return m.width > 3 ? 1 << (m.width - 3) : 1; }

INLINE u16 magnitude_of(u16 position) {
    u16 negative = (u16)-position;
    return position < negative ? position : negative;
}
INLINE i16 cost_of(u16 distance) {
    return (i16)((u16)(((u32)distance * distance) >> 16) >> (COST_BITS - 16));
}

/* Extend all paths by a row of elements. Two states lead to the same two: the first one, by an even code, to `upper`
   and by an odd one to `lower`, its partner the other way round. A decision is the parity by which the better path
   gets to a state; decided (states / 8, 64) has a bit for each. */
INLINE void extend_paths(Machine m, const i32 *restrict positions, i16 (*restrict metrics)[MACHINES],
                         u8 *restrict decided) {
    u16 odds[MOST_STATES / 16][MACHINES];
    for (int l = 0; l < MACHINES; l++) {
        u16 whole = magnitude_of((u16)positions[l]);
        u16 half = magnitude_of((u16)(positions[l] - POSITION_STEP / 2));
        i16 costs[2][2] = {{cost_of(whole), cost_of((u16)(POSITION_STEP - whole))},
                           {cost_of((u16)(POSITION_STEP - half)), cost_of(half)}};
        i16 next[MOST_STATES];
        u16 odd[MOST_STATES / 16] = {0};
#pragma GCC unroll 32
        for (int state = 0; state < 1 << m.width; state++) {
            int partner = state ^ m.forward, quantizer = state & 1;
            if (partner < state) continue;
            int upper = (state >> 1) ^ (quantizer * (m.feedback >> 1)), lower = upper ^ (m.forward >> 1);
            i16 first = metrics[state][l], second = metrics[partner][l];
            i16 even_cost = costs[quantizer][0], odd_cost = costs[quantizer][1];
            i16 a = (i16)(first + even_cost), b = (i16)(second + odd_cost);
            i16 c = (i16)(second + even_cost), d = (i16)(first + odd_cost);
            next[upper] = b < a ? b : a;
            next[lower] = d < c ? d : c;
            odd[upper / 16] |= (u16)(b < a ? 1 << upper % 16 : 0);
            odd[lower / 16] |= (u16)(d < c ? 1 << lower % 16 : 0);
        }
#pragma GCC unroll 32
        for (int state = 0; state < 1 << m.width; state++) metrics[state][l] = next[state];
        odds[0][l] = odd[0];
        if (m.width > 4) odds[1][l] = odd[1];
    }
    for (int byte = 0; byte < decision_bytes(m);
         byte++) /* by itself: the loop above stays in words of 16 bits */
        for (int l = 0; l < MACHINES; l++)
            decided[byte * MACHINES + l] = (u8)(odds[byte / 2][l] >> byte % 2 * 8);
}

static void extend_4(const i32 *positions, i16 (*metrics)[MACHINES], u8 *decided) {
    extend_paths(machine_of(4), positions, metrics, decided);
}
static void extend_8(const i32 *positions, i16 (*metrics)[MACHINES], u8 *decided) {
    extend_paths(machine_of(8), positions, metrics, decided);
}
static void extend_16(const i32 *positions, i16 (*metrics)[MACHINES], u8 *decided) {
    extend_paths(machine_of(16), positions, metrics, decided);
}
static void extend_32(const i32 *positions, i16 (*metrics)[MACHINES], u8 *decided) {
    extend_paths(machine_of(32), positions, metrics, decided);
}

static void level_metrics(int states, i16 (*metrics)[MACHINES]) {
    i16 base[MACHINES];
    memcpy(base, metrics[0], sizeof base);
    for (int state = 0; state < states; state++)
        for (int l = 0; l < MACHINES; l++) metrics[state][l] = (i16)(metrics[state][l] - base[l]);
}

static void extend_by_row(int states, const i32 *positions, i16 (*metrics)[MACHINES], u8 *decided) {
    switch (states) {
    case 4: extend_4(positions, metrics, decided); break;
    case 8: extend_8(positions, metrics, decided); break;
    case 16: extend_16(positions, metrics, decided); break;
    default: extend_32(positions, metrics, decided);
    }
}

/* Set the state of each machine from `first` on in which its best path ends. */
static void find_best(int states, i16 (*metrics)[MACHINES], int first, u32 *last) {
    for (int l = first; l < MACHINES; l++) {
        last[l] = 0;
        for (int state = 1; state < states; state++)
            if (metrics[state][l] < metrics[last[l]][l]) last[l] = (u32)state;
    }
}

/* Find the path of least squared error for each machine, forwards. Sets decisions (rows, states / 8, 64). Machines
   begin in the states `last`, and it becomes the best ones in the end; of machines that the last row, of `final`
   elements, leaves out, those before it. */
static void search_paths(Machine m, const Elements *elements, i64 rows, int final, u8 *decisions, u32 *last) {
    int states = 1 << m.width;
    i16 metrics[MOST_STATES][MACHINES]; /* what the best path to each state costs */
    i32 positions[MACHINES];
    for (int state = 0; state < states; state++)
        for (int l = 0; l < MACHINES; l++) metrics[state][l] = last[l] == (u32)state ? 0 : UNREACHED;
    for (i64 row = 0; row < rows; row++, decisions += decision_bytes(m) * MACHINES) {
        if (row == rows - 1) find_best(states, metrics, final, last);
        place_row(elements, row, positions);
        extend_by_row(states, positions, metrics, decisions);
        if (row % BETWEEN == BETWEEN - 1) level_metrics(states, metrics);
    }
    u32 ended[MACHINES];
    find_best(states, metrics, 0, ended);
    memcpy(last, ended, (size_t) final * sizeof *last);
}

/* ---- trace ----------------------------------------------------------------------------------------- */

enum { MACHINE_LANES = 8 };
typedef u32 MachineLanes __attribute__((vector_size(4 * MACHINE_LANES)));

/* Move `states` to those before a row; their low bits are then the row's quantizers. Sets its parities, too.
   Written as vectors since clang makes none of a loop that shifts each lane by another number. */
INLINE void step_back(Machine m, const u32 *decided, u32 *states, u32 *parities) {
    u32 top = (u32)m.width - 1, mask = (2u << top) - 1;
    u32 by_quantizer = (u32)m.feedback >> 1, by_parity = (u32)m.forward >> 1;
    for (int l = 0; l < MACHINES; l += MACHINE_LANES) {
        MachineLanes state, parity;
        memcpy(&state, states + l, sizeof state);
        memcpy(&parity, decided + l, sizeof parity);
        parity = (parity >> state) & 1;
        MachineLanes quantizer = state >> top;
        MachineLanes before = state ^ (by_quantizer & -quantizer) ^ (by_parity & -parity);
        state = ((before << 1) & mask) | quantizer;
        memcpy(states + l, &state, sizeof state);
        memcpy(parities + l, &parity, sizeof parity);
    }
}

/* Set the codes of a row, and move `states` as `step_back` does. */
static void trace_row(Machine m, const i32 *restrict positions, const u8 *restrict bytes,
                      u32 *restrict states, i16 *restrict codes) {
    u32 decided[MACHINES], parities[MACHINES];
    for (int l = 0; l < MACHINES; l++) decided[l] = bytes[l];
    for (int byte = 1; byte < decision_bytes(m); byte++)
        for (int l = 0; l < MACHINES; l++) decided[l] |= (u32)bytes[byte * MACHINES + l] << 8 * byte;
    step_back(m, decided, states, parities);
    for (int l = 0; l < MACHINES; l++) {
        i32 parity = (i32)parities[l], quantizer = states[l] & 1;
        i32 place = positions[l] + (quantizer << 14) - (parity << 15) + POSITION_STEP;
        codes[l] = (i16)(2 * (place >> 16) + parity);
    }
}

enum { MOST_CENTROIDS = 16 };

/* How far magnitudes lie above that of their points, at 0 … 16 half steps and more, in all. */
typedef struct {
    i64 sums[MOST_CENTROIDS + 2], counts[MOST_CENTROIDS + 2];
} Residuals;

static void add_residuals(const i32 *restrict positions, const i16 *restrict codes,
                          const u32 *restrict states, i64 n, Residuals *to) {
    i32 magnitudes[MACHINES], residuals[MACHINES];
    for (int l = 0; l < MACHINES; l++) {
        i32 point = 2 * codes[l] - (i32)(states[l] & 1), above = positions[l] - point * (POSITION_STEP / 2);
        i32 magnitude = point < 0 ? -point : point;
        magnitudes[l] = magnitude > MOST_CENTROIDS ? MOST_CENTROIDS + 1 : magnitude;
        residuals[l] = point < 0 ? -above : above;
    }
    for (i64 l = 0; l < n; l++) {
        to->sums[magnitudes[l]] += residuals[l];
        to->counts[magnitudes[l]]++;
    }
}

/* Set how far the means at 1, 2, … half steps lie below these, in 1/256 step; return how many, without zeros at the
   end. */
static i64 find_centroids(const Residuals *r, i8 *centroids) {
    i64 found = 0;
    for (i64 k = 0; k < MOST_CENTROIDS; k++) {
        centroids[k] = centroid_of(r->sums[k + 1], r->counts[k + 1], POSITION_STEP);
        if (centroids[k]) found = k + 1;
    }
    return found;
}

ENTRY(trellis_encode) {
    Elements elements = {arg[0].data, arg[0].size, arg[0].itemsize, arg[1].f};
    Machine m = machine_of(arg[2].i);
    i64 rows = (elements.size + MACHINES - 1) / MACHINES, every = arg[3].i;
    i16 *codes = arg[4].data;
    if (!m.width || arg[4].size != rows * MACHINES) return BAD_SIZES;
    if (!all_within(&elements)) return -1;
    TAKE(u8, decisions, rows * decision_bytes(m) * MACHINES);
    u32 states[MACHINES] = {0};
    i32 positions[MACHINES];
    Residuals residuals = {{0}, {0}};
    search_paths(m, &elements, rows, MACHINES, decisions, states);
    for (i64 row = rows - 1; row >= 0; row--) {
        i16 *some = codes + row * MACHINES;
        place_row(&elements, row, positions);
        trace_row(m, positions, decisions + row * decision_bytes(m) * MACHINES, states, some);
        if (every && row % every == 0)
            add_residuals(positions, some, states, min64(elements.size - row * MACHINES, MACHINES),
                          &residuals);
    }
    return find_centroids(&residuals, arg[5].data);
}

/* Code the first elements of a sequence that goes on from states of the machines, which then move on. The elements
   behind them are looked at only. */
ENTRY(trellis_continue) {
    Elements elements = {arg[0].data, arg[0].size, arg[0].itemsize, arg[1].f};
    Machine m = machine_of(arg[2].i);
    i64 rows = (elements.size + MACHINES - 1) / MACHINES, n = arg[4].size;
    u8 *machines = arg[3].data, parities[MACHINES] = {0}, quantizers[MACHINES], moved[MACHINES];
    i16 *found = arg[4].data;
    i32 *points = arg[5].data, positions[MACHINES];
    if (!m.width || n > elements.size) return BAD_SIZES;
    if (!n) return 1;
    if (!all_within(&elements)) return 0;
    TAKE(u8, decisions, rows * decision_bytes(m) * MACHINES);
    TAKE(i16, codes, rows * MACHINES);
    int final = (int)(elements.size - (rows - 1) * MACHINES);
    u32 states[MACHINES], kept[MACHINES];
    for (int l = 0; l < MACHINES; l++) states[l] = machines[l] & ((1u << m.width) - 1);
    search_paths(m, &elements, rows, final, decisions, states);
    for (i64 row = rows - 1; row >= 0; row--) {
        memcpy(kept, states, sizeof kept);
        place_row(&elements, row, positions);
        trace_row(m, positions, decisions + row * decision_bytes(m) * MACHINES, states,
                  codes + row * MACHINES);
        if (row == rows - 1) memcpy(states + final, kept + final, (size_t)(MACHINES - final) * sizeof *kept);
    }
    memcpy(found, codes, (size_t)n * sizeof *codes);
    for (int l = 0; l < MACHINES; l++) machines[l] &= (u8)((1u << m.width) - 1);
    for (i64 start = 0; start < n; start += MACHINES) {
        i64 some = min64(n - start, MACHINES);
        for (i64 l = 0; l < some; l++) parities[l] = codes[start + l] & 1;
        memcpy(moved, machines, sizeof moved);
        advance_machines(m, moved, parities, quantizers);
        memcpy(machines, moved, (size_t)some);
        for (i64 l = 0; l < some; l++) points[start + l] = 2 * codes[start + l] - quantizers[l];
    }
    for (int l = 0; l < MACHINES; l++) moved[l] = machines[(l + n) % MACHINES];
    memcpy(machines, moved, sizeof moved);
    return 1;
}

/* ---- values ---------------------------------------------------------------------------------------- */

/* The places in a table of the values of at most a row of codes, whose machines move on. */
INLINE void find_machine_places(Machine m, u8 *states, const i16 *restrict codes, i64 n, i32 lowest,
                                i32 *restrict places) {
    u8 parities[MACHINES] = {0}, quantizers[MACHINES];
    for (i64 l = 0; l < n; l++) parities[l] = codes[l] & 1;
    advance_machines(m, states, parities, quantizers);
    for (i64 l = 0; l < n; l++) places[l] = 2 * codes[l] - quantizers[l] - lowest;
}

#define LOOK_UP(W)                                                                                         \
    static void look_up_##W(const W *restrict table, const i32 *restrict places, i64 n, W *restrict out) { \
        for (i64 l = 0; l < n; l++) out[l] = table[places[l]];                                             \
    }
LOOK_UP(u8)
LOOK_UP(u16)
LOOK_UP(u32)
LOOK_UP(u64)
#undef LOOK_UP

ENTRY(trellis_decode) {
    const i16 *codes = arg[0].data;
    const void *table = arg[3].data;
    u8 *out = arg[4].data;
    i64 itemsize = arg[4].itemsize;
    Machine m = machine_of(arg[1].i);
    i32 lowest = (i32)arg[2].i, last = (i32)min64(arg[3].size, 1 << 18) - 1, places[MACHINES];
    u8 states[MACHINES] = {0}, parities[MACHINES] = {0}, quantizers[MACHINES];
    (void)scratch;
    if (!m.width || last < 0) return BAD_SIZES;
    for (i64 start = 0; start < arg[0].size; start += MACHINES) {
        i64 n = min64(arg[0].size - start, MACHINES);
        void *some = out + start * itemsize;
        for (i64 l = 0; l < n; l++) parities[l] = codes[start + l] & 1;
        advance_machines(m, states, parities, quantizers);
        for (i64 l = 0; l < n; l++) {
            i32 place =
                2 * codes[start + l] - quantizers[l] - lowest; /* beyond the table where bytes are damaged */
            place = place < last ? place : last;
            places[l] = place > 0 ? place : 0;
        }
        switch (itemsize) {
        case 1: look_up_u8(table, places, n, some); break;
        case 2: look_up_u16(table, places, n, some); break;
        case 4: look_up_u32(table, places, n, some); break;
        default: look_up_u64(table, places, n, some);
        }
    }
    return 0;
}
