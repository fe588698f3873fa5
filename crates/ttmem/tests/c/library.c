/* A library of its own: the C library is linked into it. */
#include "ttmem.h"

const char *version(void);

const char *version(void) { return ttmem_version(); }
