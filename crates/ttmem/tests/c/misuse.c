/* Mistakes that a program may make: each returns an error, and the next call works. The first argument selects a trial. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ttmem.h"

static int failures;

#define CHECK(call, want)                                                                                     \
    do {                                                                                                      \
        long long got_ = (long long)(call), want_ = (long long)(want);                                        \
        if (got_ != want_) {                                                                                  \
            fprintf(stderr, "line %d: %s gave %lld (%s), not %lld\n", __LINE__, #call, got_,                  \
                    ttmem_error_text((int32_t)got_), want_);                                                  \
            failures++;                                                                                       \
        }                                                                                                     \
    } while (0)

static int32_t mesh(void) {
    const int32_t devices[] = {0, 1};
    return ttmem_define_devices(devices, 2);
}

static ttmem_buffer dram(int32_t allocator, uint64_t address, uint64_t bytes) {
    ttmem_buffer it;
    memset(&it, 0, sizeof it);
    it.allocator = allocator;
    it.space = TTMEM_SPACE_DRAM;
    it.address = address;
    it.requested = bytes;
    return it;
}

/* Checks that tracking still works after a trial. */
static void works(void) {
    int32_t allocator = mesh();
    CHECK(allocator > 0, 1);
    ttmem_buffer it = dram(allocator, 0x7000000, 4096);
    CHECK(ttmem_alloc(&it), 0);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x7000000), 0);
}

static void nulls(void) {
    int32_t chip = 1;
    ttmem_banks banks = {TTMEM_SPACE_DRAM, 12, 0, 1 << 20};
    CHECK(ttmem_enable(NULL), 0);
    CHECK(ttmem_get_status(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_chip(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_allocator(NULL, 1, &banks, 1), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_allocator(&chip, 1, NULL, 1), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_devices(NULL, 1), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_cores(NULL, 1), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_site(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_define_call_site(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_mark(NULL, NULL), TTMEM_ERROR_NULL);
    ttmem_call_site site;
    memset(&site, 0, sizeof site);
    CHECK(ttmem_define_call_site(&site) > 0, 1);
    site.rank = 3;
    CHECK(ttmem_define_call_site(&site), TTMEM_ERROR_NULL);
    CHECK(ttmem_alloc(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_free_on_cores(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_out_of_memory(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_place(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_displace(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_load_kernel(NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_audit(0, 1, TTMEM_SPACE_DRAM, NULL), TTMEM_ERROR_NULL);
    CHECK(ttmem_begin_program(mesh(), 3, NULL), 0);
    /* An empty set of devices is no allocator. */
    CHECK(ttmem_define_devices(NULL, 0), TTMEM_ERROR_UNKNOWN_CHIP);
}

/* Misaligned pointers, and impossible counts. */
static void askew(void) {
    _Alignas(8) char bytes[sizeof(ttmem_buffer) + 8];
    memset(bytes, 0, sizeof bytes);
    const void *misaligned = bytes + 1;
    CHECK(ttmem_alloc((const ttmem_buffer *)misaligned), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_call_site((const ttmem_call_site *)misaligned), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_mark("step", (const uint64_t *)misaligned), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_place((const ttmem_placement *)misaligned), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_devices((const int32_t *)misaligned, 2), TTMEM_ERROR_BAD_VALUE);
    const int32_t one = 0;
    CHECK(ttmem_define_devices(&one, SIZE_MAX), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_devices(&one, (size_t)1 << 40), TTMEM_ERROR_BAD_VALUE);
}

static void texts(void) {
    const char *bad = "caf\xe9 \xff\xfe";
    ttmem_chip chip;
    memset(&chip, 0, sizeof chip);
    chip.board = bad;
    CHECK(ttmem_define_chip(&chip), TTMEM_ERROR_NOT_UTF8);
    CHECK(ttmem_define_site(bad), TTMEM_ERROR_NOT_UTF8);
    CHECK(ttmem_mark(bad, NULL), TTMEM_ERROR_NOT_UTF8);
    ttmem_call_site site;
    memset(&site, 0, sizeof site);
    site.op = bad;
    CHECK(ttmem_define_call_site(&site), TTMEM_ERROR_NOT_UTF8);
    site.op = NULL;
    site.data_type = "float7";
    CHECK(ttmem_define_call_site(&site), TTMEM_ERROR_BAD_VALUE);
    site.data_type = NULL;
    site.tensor_layout = "heap";
    CHECK(ttmem_define_call_site(&site), TTMEM_ERROR_BAD_VALUE);
    site.tensor_layout = NULL;
    site.purpose = 4711;
    CHECK(ttmem_define_call_site(&site), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_begin_program(mesh(), 1, bad), TTMEM_ERROR_NOT_UTF8);
    ttmem_options options;
    memset(&options, 0, sizeof options);
    options.folder = bad;
    CHECK(ttmem_enable(&options), TTMEM_ERROR_NOT_UTF8);
    /* A call site of this length is refused; a board's name is cut. */
    char *long_text = malloc(1 << 20);
    memset(long_text, 'x', (1 << 20) - 1);
    long_text[(1 << 20) - 1] = 0;
    CHECK(ttmem_define_site(long_text), TTMEM_ERROR_DEFINITIONS_FULL);
    chip.board = long_text;
    chip.pci = "";
    CHECK(ttmem_define_chip(&chip) > 0, 1);
    CHECK(ttmem_begin_program(mesh(), 2, long_text), 0);
    CHECK(ttmem_dispatch(mesh(), 2), 0);
    free(long_text);
}

static void numbers(void) {
    ttmem_buffer it = dram(mesh(), 0x1000, 64);
    CHECK(ttmem_alloc(&it), 0);
    it.allocator = 4711;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
    it.allocator = TTMEM_ERROR_NULL;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
    it.allocator = INT32_MAX;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
    it = dram(mesh(), 0x2000, 0);
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_ZERO_SIZE);
    it.requested = UINT64_MAX;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_TOO_LARGE);
    it.requested = 64;
    it.address = UINT64_MAX - 3;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_BEYOND_ADDRESSES);
    it.address = 0x2000;
    it.space = 0;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_WRONG_SPACE);
    it.space = UINT32_MAX;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_WRONG_SPACE);
    it.space = TTMEM_SPACE_CB;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_WRONG_SPACE);
    it.space = TTMEM_SPACE_L1;
    it.layout = 99;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_BAD_VALUE);
    it.layout = TTMEM_LAYOUT_BLOCK_SHARDED;
    it.cores = -5;
    it.site = -5;
    CHECK(ttmem_alloc(&it), 0);
    const int32_t bad[] = {0, -1};
    CHECK(ttmem_define_devices(bad, 2), TTMEM_ERROR_UNKNOWN_CHIP);
    const int32_t far = 1 << 20;
    CHECK(ttmem_define_devices(&far, 1), TTMEM_ERROR_UNKNOWN_CHIP);
    const int32_t unknown = 60000;
    CHECK(ttmem_define_allocator(&unknown, 1, NULL, 0), TTMEM_ERROR_UNKNOWN_CHIP);
    const ttmem_core_range wide = {0, 0, 16, 0};
    CHECK(ttmem_define_cores(&wide, 1), TTMEM_ERROR_BAD_VALUE);
    const ttmem_core_range reversed[] = {{3, 3, 1, 1}, {3, 0, 1, 0}, {0, 3, 0, 1}};
    for (size_t n = 0; n < 3; n++) {
        CHECK(ttmem_define_cores(&reversed[n], 1), TTMEM_ERROR_BAD_VALUE);
    }
    const ttmem_core_range half_reversed[] = {{0, 0, 1, 1}, {3, 3, 1, 1}};
    CHECK(ttmem_define_cores(half_reversed, 2), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_cores(half_reversed, 0), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_cores(NULL, 0), TTMEM_ERROR_BAD_VALUE);
    CHECK(ttmem_define_cores(half_reversed, 1) > 0, 1);
    CHECK(ttmem_dispatch(mesh(), 77), TTMEM_ERROR_UNKNOWN_PROGRAM);
    CHECK(ttmem_end_program(mesh(), 77), TTMEM_ERROR_UNKNOWN_PROGRAM);
    CHECK(ttmem_begin_program(mesh(), 0, "none"), TTMEM_ERROR_UNKNOWN_PROGRAM);
    CHECK(ttmem_report_allocation(-1, 64, TTMEM_BUFFER_TYPE_DRAM, 1), TTMEM_ERROR_UNKNOWN_CHIP);
    CHECK(ttmem_report_allocation(0, 64, 5, 1), TTMEM_ERROR_WRONG_SPACE);
    CHECK(ttmem_report_kernel_load(0, 64, 1, 4), TTMEM_ERROR_BAD_VALUE);
    CHECK(strcmp(ttmem_error_text(-12345), "unknown error"), 0);
    CHECK(strcmp(ttmem_error_text(7), "no error"), 0);
}

static void twice(void) {
    int32_t allocator = mesh();
    ttmem_buffer it = dram(allocator, 0x1000, 64);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), TTMEM_ERROR_UNKNOWN_FREE);
    CHECK(ttmem_alloc(&it), 0);
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_STILL_HELD);
    it.requested = 128;
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_REPLACED);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), 0);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), TTMEM_ERROR_DOUBLE_FREE);
    CHECK(ttmem_report_cb_allocation(0, 64, 0x20000), 0);
    CHECK(ttmem_report_cb_deallocation(0, 64, 0x20000), 0);
    CHECK(ttmem_report_cb_deallocation(0, 64, 0x20000), TTMEM_ERROR_DOUBLE_FREE);
    CHECK(ttmem_report_kernel_load(0, 64, 9, TTMEM_KERNEL_CLASS_FABRIC), 0);
    CHECK(ttmem_report_kernel_unload(0, 9), 0);
    CHECK(ttmem_report_kernel_unload(0, 9), TTMEM_ERROR_DOUBLE_FREE);
    CHECK(ttmem_close_allocator(allocator), 0);
    CHECK(ttmem_close_allocator(allocator), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
}

static void closed(void) {
    int32_t allocator = mesh();
    ttmem_buffer it = dram(allocator, 0x1000, 64);
    CHECK(ttmem_alloc(&it), 0);
    CHECK(ttmem_close(), 0);
    CHECK(ttmem_close(), 0);
    CHECK(ttmem_is_enabled(), 0);
    /* Disabled tracking is no error, so callers need not check. */
    CHECK(ttmem_alloc(&it), 0);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), 0);
    CHECK(mesh(), 0);
    CHECK(ttmem_peak(allocator, TTMEM_SPACE_DRAM), 0);
    CHECK(ttmem_refresh(), 0);
    ttmem_status status;
    CHECK(ttmem_get_status(&status), 0);
    CHECK(status.on, 0);
    CHECK(status.segment[0], 0);
    CHECK(ttmem_enable(NULL), 0);
    CHECK(ttmem_is_enabled(), 1);
    CHECK(ttmem_alloc(&it), TTMEM_ERROR_UNKNOWN_ALLOCATOR);
}

static void forked(void) {
    int32_t allocator = mesh();
    ttmem_buffer it = dram(allocator, 0x1000, 64);
    CHECK(ttmem_alloc(&it), 0);
    ttmem_status mine, theirs;
    CHECK(ttmem_get_status(&mine), 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), TTMEM_ERROR_INHERITED_FREE);
        CHECK(ttmem_alloc(&it), 0);
        CHECK(ttmem_get_status(&theirs), 0);
        CHECK(theirs.live, 1);
        CHECK(strcmp(mine.segment, theirs.segment) != 0, 1);
        CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), 0);
        CHECK(ttmem_close(), 0);
        _exit(failures ? 1 : 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0), child);
    CHECK(status, 0);
    CHECK(ttmem_get_status(&theirs), 0);
    CHECK(theirs.live, 1);
    CHECK(strcmp(mine.segment, theirs.segment), 0);
    CHECK(ttmem_free(allocator, TTMEM_SPACE_DRAM, 0x1000), 0);
}

#define THREADS 8
#define ROUNDS 5000

static void *hammer(void *given) {
    uint64_t me = (uint64_t)(uintptr_t)given;
    int32_t allocator = mesh();
    long wrong = 0;
    for (uint64_t n = 0; n < ROUNDS; n++) {
        ttmem_buffer it = dram(allocator, (me << 32) + n * 64, 64);
        wrong += ttmem_alloc(&it) != 0;
        wrong += ttmem_report_allocation((int32_t)me, 64, TTMEM_BUFFER_TYPE_L1, n * 64) != 0;
        if (n % 2) {
            wrong += ttmem_free(allocator, TTMEM_SPACE_DRAM, it.address) != 0;
            wrong += ttmem_report_deallocation((int32_t)me, n * 64) != 0;
        }
    }
    return (void *)(uintptr_t)wrong;
}

static void threads(void) {
    pthread_t all[THREADS];
    for (uintptr_t n = 0; n < THREADS; n++) {
        CHECK(pthread_create(&all[n], NULL, hammer, (void *)n), 0);
    }
    for (int n = 0; n < THREADS; n++) {
        void *wrong = NULL;
        CHECK(pthread_join(all[n], &wrong), 0);
        CHECK((uintptr_t)wrong, 0);
    }
    ttmem_status status;
    CHECK(ttmem_get_status(&status), 0);
    CHECK(status.live, (uint64_t)THREADS * ROUNDS);
    CHECK(status.lost, 0);
}

/* Random calls with random numbers from several threads, with closing and enabling among them. */
static void *roll(void *given) {
    uint64_t state = (uint64_t)(uintptr_t)given * 0x9e3779b97f4a7c15u + 1;
    for (int n = 0; n < 60000; n++) {
        uint64_t r[6];
        for (int i = 0; i < 6; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            /* Mostly small, so that some are valid. */
            r[i] = state & 0x700 ? state % 8 : state;
        }
        int32_t allocator = (int32_t)r[0];
        uint32_t space = (uint32_t)r[1] % 13;
        ttmem_buffer buffer = {allocator, space, r[2], r[3], r[4], r[5], (int32_t)r[1], (int32_t)r[2], (uint32_t)r[3],
                               (uint32_t)r[4], {0, 0}};
        ttmem_placement placement = {allocator, space, r[2], r[3], (uint32_t)r[4], (int32_t)r[5], (uint32_t)r[1], 0,
                                     {0, 0}};
        ttmem_kernel kernel = {allocator, (uint32_t)r[1], r[2], r[3], (int32_t)r[4], (uint32_t)r[5] % 5, (uint32_t)r[0],
                               0, {0, 0}};
        int32_t numbers[3] = {(int32_t)r[1], (int32_t)r[2], (int32_t)r[3]};
        ttmem_banks banks[2] = {{space, (uint32_t)r[2], r[3], r[4]}, {(uint32_t)r[5] % 13, 3, r[1], r[2]}};
        ttmem_core_range range = {(uint32_t)r[0], (uint32_t)r[1], (uint32_t)r[2], (uint32_t)r[3]};
        ttmem_statistics statistics = {r[1], r[2], r[3]};
        ttmem_chip chip;
        memset(&chip, 0, sizeof chip);
        chip.unique_id = r[0] % 64;
        chip.columns = (uint32_t)r[1];
        chip.dram_bytes = r[2];
        switch (state % 24) {
        case 0: (void)ttmem_define_chip(&chip); break;
        case 1: (void)ttmem_define_allocator(numbers, r[4] % 4, banks, r[5] % 3); break;
        case 2: (void)ttmem_define_devices(numbers, r[4] % 4); break;
        case 3: (void)ttmem_close_allocator(allocator); break;
        case 4: (void)ttmem_define_cores(&range, 1); break;
        case 5: (void)ttmem_begin_program(allocator, (uint32_t)r[1], "any"); break;
        case 6: (void)ttmem_build_program(allocator, (uint32_t)r[1], (int32_t)r[2], (uint32_t)r[3]); break;
        case 7: (void)ttmem_dispatch(allocator, (uint32_t)r[1]); break;
        case 8: (void)ttmem_end_program(allocator, (uint32_t)r[1]); break;
        case 9: (void)ttmem_place(&placement); break;
        case 10: (void)ttmem_displace(&placement); break;
        case 11: (void)ttmem_load_kernel(&kernel); break;
        case 12: (void)ttmem_unload_kernel(allocator, r[2]); break;
        case 13: (void)ttmem_audit((int64_t)r[4], allocator, space, &statistics); break;
        case 14: (void)ttmem_peak(allocator, space); break;
        case 15: (void)ttmem_reset_peak(allocator, space); break;
        case 16: (void)ttmem_out_of_memory(&buffer); break;
        case 17: (void)ttmem_free_on_cores(&buffer); break;
        case 18: (void)ttmem_free_anywhere(allocator, r[2]); break;
        case 19: (void)ttmem_free(allocator, space, r[2]); break;
        case 20: (void)ttmem_report_allocation((int32_t)r[1], r[3], (uint32_t)r[4], r[2]); break;
        case 21: (void)ttmem_report_cb_allocation((int32_t)r[1], r[3], r[2]); break;
        case 22:
            if (n % 500 == 0) {
                (void)ttmem_close();
                (void)ttmem_enable(NULL);
            }
            break;
        default: (void)ttmem_alloc(&buffer); break;
        }
    }
    return NULL;
}

static void anything(void) {
    pthread_t all[4];
    for (uintptr_t n = 0; n < 4; n++) {
        CHECK(pthread_create(&all[n], NULL, roll, (void *)(n + 1)), 0);
    }
    for (int n = 0; n < 4; n++) {
        CHECK(pthread_join(all[n], NULL), 0);
    }
    (void)ttmem_close();
    (void)ttmem_enable(NULL);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*work)(void);
    } all[] = {{"nulls", nulls}, {"askew", askew}, {"texts", texts}, {"numbers", numbers}, {"twice", twice},
               {"closed", closed}, {"forked", forked}, {"threads", threads}, {"anything", anything}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        if (count >= 2 && strcmp(arguments[1], all[n].name) == 0) {
            all[n].work();
            works();
            /* As if killed, so that the segment stays. */
            if (count > 2 && strcmp(arguments[2], "_exit") == 0) _exit(failures ? 1 : 0);
            return failures ? 1 : 0;
        }
    }
    fprintf(stderr, "no such trial\n");
    return 2;
}
