/* All kernels for one processor level, as one unit: compiled once a level, with TC_TABLE naming its table. */
#include "native.h"

#include "bit_planes.h"
#include "frequency_tables.h"
#include "float_side.h"

#include "uniform.c"
#include "grid.c"
#include "groups.c"
#include "codebooks.c"
#include "stochastic.c"
#include "linear.c"
#include "errors.c"
#include "selection.c"
#include "gaps.c"
#include "sparse.c"
#include "scores.c"
#include "survey.c"
#include "gradients.c"
#include "frequencies.c"
#include "trellis.c"
#include "ans.c"
#include "bitpack.c"
#include "contexts.c"
#include "floats.c"
#include "gradients.c"
#include "groupfloats.c"
#include "frequencies.c"
#include "trellis.c"
#define STREAMS ANS_STREAMS /* until it has a name of its own */
#include "ans.c"
#undef STREAMS

#define KERNEL(name, arguments) {#name, arguments, name},
const Kernel TC_TABLE[] = {
#include "table.h"
    {NULL, NULL, NULL}};
