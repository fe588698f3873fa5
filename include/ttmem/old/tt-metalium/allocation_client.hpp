// Where some of the old documents have it.
#include "../tt_metal/impl/allocator/allocation_client.hpp"
