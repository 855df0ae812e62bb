/* What the module needs of CPython's stable ABI (3.11). It is frozen, so these declarations stand in for Python.h:
   no header package on a user's machine, and one source for every target that is compiled for from another. */
#ifndef TC_ABI3_H
#define TC_ABI3_H
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define PY_IMPORT extern __declspec(dllimport)
#define PY_INIT __declspec(dllexport)
#else
#define PY_IMPORT extern
#define PY_INIT __attribute__((visibility("default")))
#endif

typedef intptr_t Py_ssize_t;
typedef struct PyObject PyObject;
typedef struct PyThreadState PyThreadState;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *const *, Py_ssize_t);
typedef struct {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
typedef struct {
    int slot;
    void *value;
} PyModuleDef_Slot;
typedef struct {
    struct {
        Py_ssize_t ob_refcnt;
        void *ob_type;
    } ob_base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;
typedef struct {
    PyModuleDef_Base m_base;
    const char *m_name, *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    PyModuleDef_Slot *m_slots;
    void *m_traverse, *m_clear, *m_free;
} PyModuleDef;

enum { METH_FASTCALL = 0x80, Py_mod_exec = 2 };
enum { PyBUF_WRITABLE = 1, PyBUF_FORMAT = 4, PyBUF_ND = 8 };

PY_IMPORT PyObject _Py_NoneStruct;
PY_IMPORT PyObject *PyExc_TypeError, *PyExc_ValueError;
PY_IMPORT int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
PY_IMPORT void PyBuffer_Release(Py_buffer *);
PY_IMPORT long long PyLong_AsLongLong(PyObject *);
PY_IMPORT unsigned long long PyLong_AsUnsignedLongLongMask(PyObject *);
PY_IMPORT PyObject *PyLong_FromLongLong(long long);
PY_IMPORT PyObject *PyLong_FromVoidPtr(void *);
PY_IMPORT void *PyLong_AsVoidPtr(PyObject *);
PY_IMPORT double PyFloat_AsDouble(PyObject *);
PY_IMPORT PyObject *PyErr_Format(PyObject *, const char *, ...);
PY_IMPORT PyObject *PyErr_NoMemory(void);
PY_IMPORT PyObject *PyErr_Occurred(void);
PY_IMPORT PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PY_IMPORT int PyModule_AddObjectRef(PyObject *, const char *, PyObject *);
PY_IMPORT int PyModule_AddIntConstant(PyObject *, const char *, long);
PY_IMPORT PyObject *PyModuleDef_Init(PyModuleDef *);
PY_IMPORT void Py_DecRef(PyObject *);
PY_IMPORT PyThreadState *PyEval_SaveThread(void);
PY_IMPORT void PyEval_RestoreThread(PyThreadState *);
#endif
