// The old header of the call that copied the statistics of all allocators to shared memory, for code that includes it by its old name.
#ifndef TTMEM_OLD_UPDATE_ALLOCATOR_STATS_HPP
#define TTMEM_OLD_UPDATE_ALLOCATOR_STATS_HPP

namespace tt::tt_metal {

/// Does nothing: no update is needed. A tracked process publishes every allocation when it happens, and the agent compares the
/// result with the statistics of the runtime's allocators in a thread of its own; `ttmem check` prints that comparison.
inline void UpdateAllocatorStatsToShm() noexcept {}

}  // namespace tt::tt_metal

#endif  // TTMEM_OLD_UPDATE_ALLOCATOR_STATS_HPP
