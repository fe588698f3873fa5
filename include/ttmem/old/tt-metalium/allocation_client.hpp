// The path in some of the old documents.
#include "../tt_metal/impl/allocator/allocation_client.hpp"
