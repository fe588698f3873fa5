// Where the old guide includes it from.
#include "tt_metal/impl/allocation_tracker.hpp"
