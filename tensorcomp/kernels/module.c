/* The kernels as a CPython module of the stable ABI. One function calls them all: it checks each argument against
   the kernel's line in table.h, releases the interpreter's lock, and turns what is returned into an int. */
#include <stdlib.h>

#include "abi3.h"
#include "native.h"

enum { MAX_KERNELS = 160, MAX_BLOCKS = 32, KEPT_LOCK_BYTES = 1 << 13 };

struct Scratch {
    void *blocks[MAX_BLOCKS];
    int count;
};

#ifdef TC_CHECKED /* so many blocks are given, and then one is refused; never where it is below 0 */
static i64 blocks_before_failure = -1;
static int refuses_block(void) { return blocks_before_failure >= 0 && blocks_before_failure-- == 0; }
#else
#define refuses_block() 0
#endif

void *scratch_take(Scratch *scratch, i64 bytes) {
    if (scratch->count == MAX_BLOCKS || bytes < 0 || refuses_block()) return NULL;
    void *block = malloc(bytes ? (size_t)bytes : 1);
    if (block) scratch->blocks[scratch->count++] = block;
    return block;
}

static void scratch_free(Scratch *scratch) {
    while (scratch->count) free(scratch->blocks[--scratch->count]);
}

/* ---- arguments ------------------------------------------------------------------------------------- */

typedef struct {
    char kind;   /* 'u', 'i', 'f', 'w': elements of an array; 'I', 'U', 'D', 'N': numbers */
    i8 variable; /* of 'W', 'R', 'S', 'F': which, else -1 */
    u8 itemsize, written, optional, number, dimensions;
    i64 shape[MAX_DIMENSIONS]; /* at least 0: exactly so long; else ~letter */
} Parameter;

typedef struct {
    const Kernel *kernel;
    int count;
    Parameter parameters[MAX_ARGUMENTS];
    PyMethodDef method;
} Bound;

static Bound bound[MAX_KERNELS];

/* Read one parameter, such as "~&u16[r,c]?"; return the text behind it, or NULL if it cannot be read. */
static const char *parse(const char *text, Parameter *p) {
    memset(p, 0, sizeof *p);
    p->variable = -1;
    if (*text == '~') text++;
    if (*text == '&') p->written = 1, text++;
    static const struct {
        const char *word;
        char kind;
    } numbers[] = {{"int", 'I'}, {"uint", 'U'}, {"float", 'D'}, {"count", 'N'}};
    for (int k = 0; k < LENGTH(numbers); k++) {
        size_t length = strlen(numbers[k].word);
        if (!strncmp(text, numbers[k].word, length)) {
            p->number = 1;
            p->kind = numbers[k].kind;
            return text + length;
        }
    }
    if (*text >= 'A' && *text <= 'Z') {
        p->kind = *text == 'F' ? 'f' : 'w';
        p->variable = (i8)(*text++ - 'A');
    } else {
        p->kind = *text++;
        p->itemsize = (u8)(strtol(text, (char **)&text, 10) / 8);
    }
    if (*text++ != '[') return NULL;
    for (;; text++) {
        if (p->dimensions == MAX_DIMENSIONS) return NULL;
        i64 *length = &p->shape[p->dimensions++];
        if (*text >= 'a' && *text <= 'z') *length = ~(i64)(*text++ - 'a');
        else *length = strtol(text, (char **)&text, 10);
        if (*text != ',') break;
    }
    if (*text++ != ']') return NULL;
    if (*text == '?') p->optional = 1, text++;
    return text;
}

static int is_of_kind(const char *format, char kind) {
    char letter =
        format ? format[0] == '<' || format[0] == '=' || format[0] == '@' ? format[1] : format[0] : 'B';
    const char *letters = kind == 'f'   ? "fd"
                          : kind == 'u' ? "?BHILQN"
                          : kind == 'i' ? "bhilqn"
                                        : "?BHILQNbhilqnc";
    return letter && strchr(letters, letter) != NULL;
}

static int wrong_argument(const Bound *b, int k, const char *what) {
    PyErr_Format(PyExc_ValueError, "kernel %s: argument %d %s; expected (%s)", b->kernel->name, k + 1, what,
                 b->kernel->arguments);
    return -1;
}

/* Check a view against its parameter; `lengths` and `widths` hold what letters stand for, -1 if not yet known. */
static int check(const Bound *b, int k, const Py_buffer *view, i64 *lengths, i64 *widths, Arg *arg) {
    const Parameter *p = &b->parameters[k];
    i64 *width = p->variable < 0 ? NULL : &widths[p->variable];
    if (!is_of_kind(view->format, p->kind) || (p->itemsize && view->itemsize != p->itemsize))
        return wrong_argument(b, k, "has elements of another type");
    if (width && *width < 0) *width = view->itemsize;
    if (width && *width != view->itemsize) return wrong_argument(b, k, "has elements of another width");
    if (view->ndim != p->dimensions) return wrong_argument(b, k, "has another number of dimensions");
    arg->itemsize = view->itemsize;
    arg->size = view->itemsize ? view->len / view->itemsize : 0;
    arg->data = view->buf;
    for (int d = 0; d < p->dimensions; d++) {
        i64 wanted = p->shape[d];
        if (wanted < 0) {
            i64 *length = &lengths[~wanted];
            if (*length < 0) *length = view->shape[d];
            wanted = *length;
        }
        if (view->shape[d] != wanted) return wrong_argument(b, k, "has a length that does not fit");
        arg->shape[d] = wanted;
    }
    return 0;
}

#ifdef TC_CHECKED /* each array in memory of exactly its size, so that a sanitizer sees an access beside it */
static int isolate(const Bound *b, Arg *args) {
    for (int k = 0; k < b->count; k++) {
        if (b->parameters[k].number || !args[k].data) continue;
        size_t bytes = (size_t)(args[k].size * args[k].itemsize);
        void *copy = malloc(bytes ? bytes : 1);
        if (!copy) return -1;
        args[k].data = memcpy(copy, args[k].data, bytes);
    }
    return 0;
}
static void give_back(const Bound *b, Arg *args, const Py_buffer *views) {
    for (int k = 0; k < b->count; k++) {
        if (b->parameters[k].number || !args[k].data || args[k].data == views[k].buf) continue;
        if (b->parameters[k].written) memcpy(views[k].buf, args[k].data, (size_t)views[k].len);
        free(args[k].data);
    }
}
#else
#define isolate(b, args) 0
#define give_back(b, args, views) (void)(views)
#endif

static i64 run(const Bound *b, Arg *args, const Py_buffer *views, i64 bytes) {
    Scratch scratch = {.count = 0};
    /* Handing the lock over costs more than a kernel takes on so little. */
    PyThreadState *state = bytes >= KEPT_LOCK_BYTES ? PyEval_SaveThread() : NULL;
    i64 result = isolate(b, args) ? NO_MEMORY : b->kernel->run(args, &scratch);
    give_back(b, args, views);
    scratch_free(&scratch);
    if (state) PyEval_RestoreThread(state);
    return result;
}

static PyObject *call(PyObject *self, PyObject *const *objects, Py_ssize_t given) {
    const Bound *b = PyLong_AsVoidPtr(self);
    Arg args[MAX_ARGUMENTS];
    Py_buffer views[MAX_ARGUMENTS];
    i64 lengths[26], widths[26], bytes = 0, result = 0;
    int k = 0, failed = 0;
    if (given != b->count)
        return PyErr_Format(PyExc_TypeError, "kernel %s takes %d arguments (%s), got %d", b->kernel->name,
                            b->count, b->kernel->arguments, (int)given);
    memset(lengths, -1, sizeof lengths);
    memset(widths, -1, sizeof widths);
    for (; k < b->count && !failed; k++) {
        const Parameter *p = &b->parameters[k];
        views[k].obj = NULL;
        views[k].buf = args[k].data = NULL;
        if (p->kind == 'D') args[k].f = PyFloat_AsDouble(objects[k]);
        else if (p->kind == 'U') args[k].i = (i64)PyLong_AsUnsignedLongLongMask(objects[k]);
        else if (p->number) args[k].i = PyLong_AsLongLong(objects[k]);
        if (p->kind == 'N') bytes = max64(bytes, args[k].i);
        if (p->number) failed = PyErr_Occurred() != NULL;
        else if (p->optional && objects[k] == &_Py_NoneStruct) args[k].size = args[k].itemsize = 0;
        else {
            failed = PyObject_GetBuffer(objects[k], &views[k],
                                        PyBUF_ND | PyBUF_FORMAT | (p->written ? PyBUF_WRITABLE : 0));
            failed = failed || check(b, k, &views[k], lengths, widths, &args[k]);
            if (!failed) bytes += views[k].len;
        }
    }
    if (!failed) result = run(b, args, views, bytes);
    while (k--)
        if (views[k].obj) PyBuffer_Release(&views[k]);
    if (failed) return NULL;
    if (result == NO_MEMORY) return PyErr_NoMemory();
    if (result == BAD_SIZES)
        return PyErr_Format(PyExc_ValueError, "kernel %s: sizes do not fit; expected (%s)", b->kernel->name,
                            b->kernel->arguments);
    return PyLong_FromLongLong(result);
}

/* ---- processor levels ------------------------------------------------------------------------------ */

extern const Kernel tc_level_1[];
#if defined(__x86_64__) && !defined(TC_ONE_LEVEL)
#include <cpuid.h>
extern const Kernel tc_level_3[], tc_level_4[];
/* By hand: __builtin_cpu_supports answers no to everything where zig links a runtime of its own. */
static long processor_level(void) {
    unsigned a, features, c, d, low, high;
    if (!__get_cpuid(1, &a, &features, &c, &d)) return 1;
    unsigned wanted = bit_OSXSAVE | bit_AVX | bit_FMA | bit_MOVBE | bit_F16C;
    if ((c & wanted) != wanted) return 1;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &features, &c, &d)) return 1;
    wanted = bit_AVX2 | bit_BMI | bit_BMI2;
    if ((features & wanted) != wanted || !__get_cpuid(0x80000001, &a, &wanted, &c, &d)) return 1;
    if (!(c & bit_LZCNT)) return 1;
    wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    return (features & wanted) == wanted && (low & 0xE6) == 0xE6 ? 4 : 3;
}
static const Kernel *table_of(long level) {
    return level == 4 ? tc_level_4 : level == 3 ? tc_level_3 : tc_level_1;
}
#else
#define processor_level() 1
#define table_of(level) tc_level_1
#endif

#ifdef TC_CHECKED
/* fail_allocation(n): refuse the n-th block of scratch memory from now on, counted from 0; none if n is below 0. */
static PyObject *fail_allocation(PyObject *self, PyObject *const *objects, Py_ssize_t given) {
    (void)self;
    blocks_before_failure = given == 1 ? PyLong_AsLongLong(objects[0]) : -1;
    return PyLong_FromLongLong(0);
}
static int add_failures(PyObject *module) {
    static PyMethodDef method = {"fail_allocation", fail_allocation, METH_FASTCALL, NULL};
    return PyModule_AddObjectRef(module, method.ml_name, PyCFunction_NewEx(&method, NULL, NULL));
}
#else
#define add_failures(module) 0
#endif

static int execute(PyObject *module) {
    const char *asked = getenv("TENSORCOMP_CPU_LEVEL"); /* a lower one: for tests and measurements */
    long level = processor_level();
    if (asked && *asked && atol(asked) < level) level = atol(asked) < 3 ? 1 : 3;
    const Kernel *table = table_of(level);
    if (PyModule_AddIntConstant(module, "cpu_level", level) || add_failures(module)) return -1;
    for (int n = 0; table[n].name; n++) {
        Bound *b = &bound[n];
        if (n == MAX_KERNELS) return PyErr_NoMemory(), -1;
        const char *text = table[n].arguments;
        b->kernel = &table[n];
        b->count = 0;
        while (*text) {
            if (*text == ' ') text++;
            if (b->count == MAX_ARGUMENTS || !(text = parse(text, &b->parameters[b->count++])))
                return PyErr_Format(PyExc_ValueError, "kernel %s: cannot read (%s)", table[n].name,
                                    table[n].arguments),
                       -1;
        }
        b->method = (PyMethodDef){table[n].name, call, METH_FASTCALL, table[n].arguments};
        PyObject *self = PyLong_FromVoidPtr(b);
        PyObject *function = self ? PyCFunction_NewEx(&b->method, self, NULL) : NULL;
        int failed = !function || PyModule_AddObjectRef(module, table[n].name, function);
        if (self) Py_DecRef(self);
        if (function) Py_DecRef(function);
        if (failed) return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};
static PyModuleDef definition = {{{1, NULL}, NULL, 0, NULL},
                                 "native",
                                 "Kernels in C; native.pyi describes each.",
                                 0,
                                 NULL,
                                 slots,
                                 NULL,
                                 NULL,
                                 NULL};
PY_INIT PyObject *PyInit_native(void);
PY_INIT PyObject *PyInit_native(void) { return PyModuleDef_Init(&definition); }
