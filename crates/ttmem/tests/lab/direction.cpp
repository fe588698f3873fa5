// Changes the direction in which the runtime's allocators place buffers, on request: ttnn gives a direction only to the kernels
// of programs. It takes the place of a function of ttnn 0.81.1 by its name.

#include <dlfcn.h>
#include <stdint.h>

using Allocate = uint64_t (*)(void *, uint64_t, uint64_t, bool, void *, uint64_t, uint64_t, void *, void *);

#define EXPORT extern "C" __attribute__((visibility("default")))

// 0: as the runtime says, 1: the other way.
EXPORT int lab_is_other_direction;
int lab_is_other_direction = 0;

#define NAME \
    "_ZN2tt8tt_metal11BankManager15allocate_bufferEmmbRKNS0_12CoreRangeSetESt8optionalIjEN4ttsl10StrongTypeIjNS0_14AllocatorIDTag" \
    "EEERKSt6vectorISt4pairImmESaISD_EERKS5_ISt13unordered_setIjSt4hashIjESt8equal_toIjESaIjEEE"

EXPORT uint64_t lab_allocate(
    void *manager, uint64_t size, uint64_t page, bool is_bottom_up, void *grid, uint64_t shards, uint64_t id, void *ranges,
    void *banks) asm(NAME);

uint64_t lab_allocate(
    void *manager, uint64_t size, uint64_t page, bool is_bottom_up, void *grid, uint64_t shards, uint64_t id, void *ranges,
    void *banks)
{
    // Python loads the runtime with local scope, so that it is not the next library.
    static Allocate real = nullptr;
    if (!real) real = reinterpret_cast<Allocate>(dlsym(dlopen("libtt_metal.so", RTLD_NOLOAD | RTLD_LAZY), NAME));
    return real(manager, size, page, is_bottom_up != (lab_is_other_direction != 0), grid, shards, id, ranges, banks);
}
