/* All kernels for one processor level, as one unit: compiled once a level, with TC_TABLE naming its table. */
#include "native.h"

#include "bitpack.c"
#include "contexts.c"
#include "huffman.c"
#include "groupfloats.c"
#include "floats.c"
#include "trellis.c"
#include "ans.c"
#include "difference.c"
#include "uniform.c"
#include "grid.c"
#include "ggml.c"
#include "groups.c"
#include "scales.c"
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

#define KERNEL(name, arguments) {#name, arguments, name},
const Kernel TC_TABLE[] = {
#include "table.h"
    {NULL, NULL, NULL}};
