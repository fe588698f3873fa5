/* Measures the cost of an event in C, in nanoseconds of processor time, as `segment.rs` does in Rust. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ttmem.h"

#define ROUNDS 20

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int32_t allocate(int32_t allocator, uint64_t n) {
    ttmem_buffer buffer = {.allocator = allocator, .space = TTMEM_SPACE_DRAM, .address = n * 2048, .requested = 2048,
                           .bytes_per_bank = 2048, .occupied = 2048};
    return ttmem_alloc(&buffer);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    uint64_t live = strtoull(arguments[1], NULL, 10), events = strtoull(arguments[2], NULL, 10);
    ttmem_chip chip = {.unique_id = 1};
    int32_t number = ttmem_define_chip(&chip);
    ttmem_banks banks = {TTMEM_SPACE_DRAM, 12, 0, (uint64_t)1 << 40};
    int32_t allocator = ttmem_define_allocator(&number, 1, &banks, 1);
    uint64_t *held = malloc(live * sizeof *held);
    for (uint64_t n = 0; n < live; n++) {
        held[n] = n;
        if (allocate(allocator, n) != 0) return 1;
    }
    uint64_t steps = events / ROUNDS / 2, state = 0x2545f4914f6cdd1d, next = live;
    uint32_t *order = malloc(steps * sizeof *order);
    for (uint64_t n = 0; n < steps; n++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order[n] = (uint32_t)(state % live);
    }
    double costs[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begin = cpu();
        for (uint64_t n = 0; n < steps; n++) {
            uint64_t *slot = &held[order[n]];
            if (ttmem_free(allocator, TTMEM_SPACE_DRAM, *slot * 2048) != 0) return 1;
            *slot = next++;
            if (allocate(allocator, *slot) != 0) return 1;
        }
        costs[round] = (cpu() - begin) / (double)(steps * 2);
    }
    ttmem_status status;
    if (ttmem_get_status(&status) != 0 || status.live != live || status.unlisted != 0 || !status.segment[0]) return 1;
    ttmem_close();
    qsort(costs, ROUNDS, sizeof *costs, by_size);
    printf("%f\n", costs[ROUNDS / 2]);
    return 0;
}
