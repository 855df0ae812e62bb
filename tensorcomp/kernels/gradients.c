/* Loops over gradients. */
#include "native.h"

/* Whether no value is infinite or NaN. */
ENTRY(is_finite) {
    (void)scratch;
    const u32 *words = arg[0].data;
    u32 worst = 0;
    for (i64 i = 0; i < arg[0].size; i++) {
        u32 magnitude = words[i] & 0x7FFFFFFFu;
        worst = magnitude > worst ? magnitude : worst;
    }
    return worst < 0x7F800000u;
}
