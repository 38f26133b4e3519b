// ddp::Store's destructor: the one home of its virtual table, so that a program that links the
// shared library sees the same type as the library does. Everything else of Store is in its
// subclasses.
#include <ddp/store.hpp>

namespace ddp {

Store::~Store() = default;

}  // namespace ddp
