// The path that the old guide includes.
#include "tt_metal/impl/allocation_tracker.hpp"
