/* The cheapest ways to an int, as raw C-API: what a function and a method of any extension cost at least. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static long last = 1L << 40;

static PyObject *next(PyObject *self, PyObject *nothing) { return PyLong_FromLong(last++); }

static PyMethodDef methods[] = {{"next", next, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyTypeObject counter = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "raw.Counter",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = methods,
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "raw", NULL, -1, methods};

PyMODINIT_FUNC PyInit_raw(void) {
    PyObject *module = PyType_Ready(&counter) < 0 ? NULL : PyModule_Create(&definition);
    if (module && PyModule_AddObject(module, "Counter", Py_NewRef((PyObject *)&counter)) < 0) return NULL;
    return module;
}
