/* The machines that name the quantizer of each element (codecs/quantize/trellis.py), 64 side by side. */
#ifndef TC_MACHINES_H
#define TC_MACHINES_H
#include "native.h"

enum { MACHINES = 64 };

typedef struct {
    int width, feedback, forward; /* bits of a state; polynomials */
} Machine;

/* The machine of so many states; its width is 0 where there is none. */
static Machine machine_of(i64 states) {
    switch (states) {
    case 4: return (Machine){2, 05, 02};
    case 8: return (Machine){3, 013, 04};
    case 16: return (Machine){4, 023, 04};
    case 32: return (Machine){5, 045, 010};
    default: return (Machine){0, 0, 0};
    }
}

/* Name the quantizer of each machine, then move it on by the parity of its element, 0 or 1. */
INLINE void advance_machines(Machine m, u8 *restrict states, const u8 *restrict parities,
                             u8 *restrict quantizers) {
    u8 by_quantizer = (u8)(m.feedback >> 1), by_parity = (u8)(m.forward >> 1);
    for (int l = 0; l < MACHINES; l++) {
        u8 state = states[l], quantizer = state & 1;
        quantizers[l] = quantizer;
        states[l] = (u8)((state >> 1) ^ (by_quantizer & -quantizer) ^ (by_parity & -parities[l]));
    }
}
#endif
