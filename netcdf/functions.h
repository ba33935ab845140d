/* Each function of functions.def that is ours as one NAME(name), for tables that need no more. */
#define EACH_TYPE(TYPED, what) \
	TYPED(what, text) \
	TYPED(what, schar) \
	TYPED(what, uchar) \
	TYPED(what, short) \
	TYPED(what, int) \
	TYPED(what, long) \
	TYPED(what, float) \
	TYPED(what, double) \
	TYPED(what, ushort) \
	TYPED(what, uint) \
	TYPED(what, longlong) \
	TYPED(what, ulonglong)
#define EACH_TYPE_OF_ATTRIBUTE(TYPED, what) EACH_TYPE(TYPED, what) TYPED(what, ubyte)
#define ACCESS_TYPED(shape, type) \
	NAME(put_##shape##_##type) \
	NAME(put_##shape##_##type##_all) \
	NAME(get_##shape##_##type) \
	NAME(get_##shape##_##type##_all) \
	NAME(iput_##shape##_##type) \
	NAME(iget_##shape##_##type) \
	NAME(bput_##shape##_##type)
#define ACCESS(shape) \
	NAME(put_##shape) \
	NAME(put_##shape##_all) \
	NAME(get_##shape) \
	NAME(get_##shape##_all) \
	NAME(iput_##shape) \
	NAME(iget_##shape) \
	NAME(bput_##shape) \
	EACH_TYPE(ACCESS_TYPED, shape)
#define MULTIPLE_TYPED(shape, type) \
	NAME(mput_##shape##_##type) \
	NAME(mput_##shape##_##type##_all) \
	NAME(mget_##shape##_##type) \
	NAME(mget_##shape##_##type##_all)
#define MULTIPLE(shape) \
	NAME(mput_##shape) \
	NAME(mput_##shape##_all) \
	NAME(mget_##shape) \
	NAME(mget_##shape##_all) \
	EACH_TYPE(MULTIPLE_TYPED, shape)
#define ATTRIBUTE_TYPED(what, type) NAME(what##_##type)
#define ATTRIBUTE() NAME(put_att) EACH_TYPE_OF_ATTRIBUTE(ATTRIBUTE_TYPED, put_att)
#define CALL(name) NAME(name)
#define PASS(name, reason)
#include "functions.def"
#undef EACH_TYPE
#undef EACH_TYPE_OF_ATTRIBUTE
#undef ACCESS_TYPED
#undef ACCESS
#undef MULTIPLE_TYPED
#undef MULTIPLE
#undef ATTRIBUTE_TYPED
#undef ATTRIBUTE
#undef CALL
#undef PASS
#undef NAME
