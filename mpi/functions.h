/* Each function of functions.def as one NAME(name), for tables that need no more. */
#define PLAIN(name, ret, params) NAME(name)
#define BLOCKING(name, direction, where) NAME(name) NAME(name##_c)
#define BLOCKING_AT(name, direction) NAME(name) NAME(name##_c)
#define NONBLOCKING(name, direction, where) NAME(name) NAME(name##_c)
#define NONBLOCKING_AT(name, direction) NAME(name) NAME(name##_c)
#define BEGIN(name, direction, where) NAME(name##_begin) NAME(name##_begin_c)
#define BEGIN_AT(name, direction) NAME(name##_begin) NAME(name##_begin_c)
#define END(name, direction) NAME(name##_end)
#include "functions.def"
#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END
#undef NAME
